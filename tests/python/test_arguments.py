"""Arguments of the wrong and of the right kind, where Python has more kinds than the core."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tidegate import ConfigError, Limit, Limiter, ManualClock, Policy, PolicyError, RateLimited


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
    """Like a client of redis-py, which reads a key for each index."""

    def __getitem__(self, index: object) -> bytes:
        raise AssertionError("it was asked")


@pytest.mark.parametrize("store", [Indexed(), 7, object()])
def test_a_client_of_redis_is_no_store(store: Any) -> None:
    with pytest.raises(TypeError, match="a store is a URL such as"):
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
