"""Arguments of right and wrong types, for which Python has more types than the core."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tidegate import (
    AsyncLimiter,
    ConfigError,
    KeyInvalid,
    Limit,
    Limiter,
    ManualClock,
    Policy,
    PolicyError,
    RateLimited,
    rollout,
)
from tidegate.flask import claim, client_ip, header


def test_a_timedelta_is_a_length_of_time_everywhere() -> None:
    clock = ManualClock(1_000.0)
    clock.advance(timedelta(seconds=1.5))
    assert clock.now() == 1_001.5
    assert Limit("gcra", 5, timedelta(minutes=1)) == Limit("gcra", 5, "1m")
    assert Policy("5/minute", block_for=timedelta(minutes=10)).block_for == 600.0
    minute = timedelta(minutes=1)
    policies: dict[str, Any] = {"p": {"limits": [{"limit": 2, "period": minute}], "block_for": timedelta(seconds=90)}}
    limiter = Limiter(
        policies=policies, clock=clock, timeout=timedelta(milliseconds=250), deny_cache=timedelta(seconds=1)
    )
    assert limiter.policy("p") == Policy("2/minute", name="p", block_for=90)
    limiter.block("p", "a", minute)
    assert limiter.peek("p", "a").retry_after == 60.0
    assert limiter.acquire("p", "a", timeout=timedelta(0)).retry_after == 60.0
    with pytest.raises(ConfigError, match="not a length of time"):
        limiter.block("p", "a", timedelta(seconds=-1))


class Indexed:
    """Acts like a client of redis-py, which reads a key for each index."""

    def __getitem__(self, index: object) -> bytes:
        raise AssertionError("it was asked")


@pytest.mark.parametrize("store", [Indexed(), 7, object()])
def test_a_client_of_redis_is_no_store(store: Any) -> None:
    with pytest.raises(TypeError, match="a store must be a URL such as"):
        Limiter(store)


@pytest.mark.parametrize("given", ["20/fortnight", ["5/s", "20/fortnight"], {"limits": "20/fortnight"}])
def test_the_error_in_a_notation_names_its_policy(given: Any) -> None:
    with pytest.raises(PolicyError, match='policy "login": ') as caught:
        Limiter(policies={"fine": "5/s", "login": given})
    assert str(caught.value) == caught.value.message
    assert "20/fortnight" in str(caught.value) or caught.value.column


def test_an_error_is_made_again_of_what_json_holds() -> None:
    for policy in (Policy("gcra 5/m burst 2; 0/month", name="p"), Policy([Limit("token-bucket", 1, "s", initial=0)])):
        decision = Limiter().check_all([("1/minute", "a"), (policy, "b", 2)])
        error = RateLimited(decision)
        again = RateLimited(*json.loads(json.dumps(error.args)))
        assert (again.decision, again.decision.decisions) == (decision, decision.decisions)
        assert (str(again), again.decision.retry_after) == (str(error), decision.retry_after)


def test_true_is_no_number_and_no_length_of_time() -> None:
    flag: Any = True
    for make, name in [
        (lambda: Limiter(timeout=flag), "timeout"),
        (lambda: AsyncLimiter(deny_cache=flag), "deny_cache"),
        (lambda: Limiter(max_waiting=flag), "max_waiting"),
        (lambda: ManualClock(now=flag), "now"),
        (lambda: rollout("redis://old", "redis://new", flag), "percent"),
        (lambda: Limiter().set_rollout(flag), "percent"),
        (lambda: AsyncLimiter().set_rollout(flag), "percent"),
        (lambda: client_ip(ipv6_prefix=flag), "ipv6_prefix"),
    ]:
        with pytest.raises((TypeError, ConfigError), match=rf"{name}.* True \(bool\)"):
            make()
    limiter = Limiter(policies={"p": "5/minute"})
    lengths: list[Any] = [
        lambda: ManualClock().advance(flag),
        lambda: ManualClock().set(flag),
        lambda: limiter.block("p", "a", flag),
        lambda: limiter.acquire("p", "a", timeout=flag),
        lambda: Policy("5/minute", block_for=flag),
        lambda: Limit("gcra", 5, flag),
        lambda: Limit("gcra", flag, 5),
        lambda: Limit("gcra", 5, 5, burst=flag),
        lambda: Limit("token-bucket", 5, 5, initial=flag),
        lambda: Limit("sliding-window", 5, 5, precision=flag),
        lambda: Policy("5/minute", journal=flag),
        lambda: Policy("5/minute", lease=flag),
        lambda: client_ip(trusted_proxies=flag),
    ]
    for call in lengths:
        with pytest.raises((TypeError, ConfigError, PolicyError), match="True"):
            call()


def test_an_option_that_is_out_of_range_is_named() -> None:
    for bits in (2**64, -(2**70), 129, 0):
        with pytest.raises(ConfigError, match=r"ipv6_prefix .* must be from 1 to 128"):
            client_ip(ipv6_prefix=bits)
    for percent in (float("nan"), float("inf"), 101, -0.5):
        with pytest.raises(ConfigError, match=r"a rollout of .* percent is out of range: give from 0 to 100"):
            rollout("redis://old", "redis://new", percent)
    assert [rollout("redis://old", "redis://new", percent).percent for percent in (0, 5, 100.0)] == [0, 5, 100]


@pytest.mark.parametrize(
    "name", [None, 5, True, b"X-API-Key", "", " ", "X A", "X-Å", "X:", "X\n", "x" * 70_000 + " ", "\ud800"]
)
def test_a_header_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"header\(\) needs the name of a header") as caught:
        header(name)
    assert len(str(caught.value)) < 300
    assert repr(header("X-API-Key")) == "header('X-API-Key')" and header("!#$%&'*+.^_`|~09az")


@pytest.mark.parametrize("name", [None, 5, True, b"sub", ""])
def test_a_claim_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"claim\(\) needs the name of a claim"):
        claim(name)


def test_waiting_says_what_every_other_call_says_of_its_arguments() -> None:
    kinds: list[Any] = [Limiter, AsyncLimiter]
    for kind in kinds:
        limiter = kind(policies={"p": "5/minute"})
        assert limiter.waiting("p", "a") == limiter.waiting("7/minute", "a") == 0
        with pytest.raises(PolicyError, match="nosuch") as caught:
            limiter.waiting("nosuch", "a")
        assert caught.value.code == "policy_unknown"
        with pytest.raises(PolicyError, match=r"expected") as caught:
            limiter.waiting("5/fortnight", "a")
        assert caught.value.column == 3
        with pytest.raises(KeyInvalid, match="70000 bytes"):
            limiter.waiting("p", "x" * 70_000)
