"""Every call of the blocking limiter, and the objects that it takes and returns."""

from __future__ import annotations

import _thread
import copy
import json
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tidegate import (
    Attempt,
    ClosedError,
    ConfigError,
    Decision,
    Limit,
    Limiter,
    ManualClock,
    Policy,
    PolicyError,
    RateLimited,
    Warning,
    lint,
)


def test_the_first_page(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"login": "20/minute; 5/3s"}, prefix=prefix, timeout=5.0)
    for _ in range(5):
        assert limiter.check("login", "alice")
    denied = limiter.check("login", "alice", cost=1, meta=None)
    assert not denied and denied.allowed is False
    assert (denied.policy, denied.key, denied.cost) == ("login", "alice", 1)
    assert (denied.limit, denied.remaining, denied.source, denied.shadow) == (5, 0, "store", False)
    assert denied.retry_after is not None and 0 < denied.retry_after <= 3.2
    assert abs(denied.reset_at - (time.time() + denied.reset_after)) < 2
    assert [limit.exceeded for limit in denied.limits] == [False, True]
    assert limiter.check("login", "bob")


def test_all_calls(store: str, prefix: str) -> None:
    clock = ManualClock()
    limiter = Limiter(store, policies={"api": "fixed-window 10/minute"}, prefix=prefix, timeout=5.0, clock=clock)
    assert limiter.peek("api", "a", cost=10)
    assert limiter.check("api", "a", cost=4).remaining == 6
    limiter.refund("api", "a", cost=2)
    assert limiter.peek("api", "a").remaining == 8
    assert limiter.charge("api", "a", 20).remaining == 0
    assert not limiter.check("api", "a")
    limiter.clear("api", "a")
    # A settle gives back nothing of a charge in the same moment as a clear, so the clock moves on.
    clock.advance(0.001)
    decision = limiter.check("api", "a", cost=5)
    limiter.settle(decision, 2)
    assert limiter.peek("api", "a").remaining == 8
    limiter.settle(limiter.check("api", "a"), 0)
    assert limiter.peek("api", "a").remaining == 8
    limiter.block("api", "a", 30)
    assert limiter.peek("api", "a").retry_after == 30.0
    limiter.block("api", "a", "2m")
    assert limiter.peek("api", "a").retry_after == 120.0
    limiter.unblock("api", "a")
    assert limiter.peek("api", "a")
    assert limiter.acquire("api", "a", cost=8, timeout=0)
    assert not limiter.acquire("api", "a", timeout=0.01)
    assert limiter.waiting("api", "a") == 0
    limiter.ping()
    limiter.close()
    with pytest.raises(ClosedError):
        limiter.check("api", "a")


def test_check_all_is_all_or_nothing(store: str, prefix: str) -> None:
    policies = {"per-user": "5/hour", "per-ip": "2/hour", "global": "100/hour"}
    limiter = Limiter(store, policies=policies, prefix=prefix, timeout=5.0)
    entries = [("per-user", "alice"), ("per-ip", "10.0.0.7"), ("global", "all", 3)]
    assert [bool(limiter.check_all(entries)) for _ in range(3)] == [True, True, False]
    denied = limiter.check_all(iter(entries))
    assert (denied.policy, [one.allowed for one in denied.decisions]) == ("per-ip", [True, False, True])
    assert limiter.peek("global", "all").remaining == 94
    for wrong in (["ab"], [("per-user",)], [("per-user", "a", 1, 2)], [5], 5):
        with pytest.raises(TypeError):
            limiter.check_all(wrong)  # type: ignore[arg-type]


def test_holds_are_given_back(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"exports": "concurrency 2"}, prefix=prefix, timeout=5.0)
    with limiter.hold("exports", "a") as one:
        assert one.decision.remaining == 1 and not one.released
        with pytest.raises(ZeroDivisionError), limiter.hold("exports", "a"):
            with pytest.raises(RateLimited), limiter.hold("exports", "a"):
                pass
            1 / 0  # noqa: B018
        two = limiter.hold("exports", "a")
        assert "held" in repr(two)
        two.release()
        two.release()
        assert two.released and limiter.peek("exports", "a").remaining == 1
    assert one.released
    forgotten = limiter.hold("exports", "a", cost=2)
    assert not limiter.peek("exports", "a")
    del forgotten
    assert limiter.peek("exports", "a").remaining == 2


def test_the_journal_returns_the_metadata_of_checks(store: str, prefix: str) -> None:
    policies = {"login": Policy("2/hour", journal=10)}
    clock = ManualClock(now=1_700_000_000.0)
    limiter = Limiter(store, policies=policies, prefix=prefix, timeout=5.0, clock=clock)
    for meta in ("günther", b"\xff\x00", None):
        limiter.check("login", "10.0.0.7", meta=meta)
    attempts = limiter.journal("login", "10.0.0.7")
    assert [one.meta for one in attempts] == [None, "\\xff\x00", "günther"]
    assert [one.meta_bytes for one in attempts] == [None, b"\xff\x00", "günther".encode()]
    assert [one.allowed for one in attempts] == [False, True, True]
    assert all(isinstance(one, Attempt) and one.at == 1_700_000_000.0 for one in attempts)
    assert attempts[2].as_dict() == {"at": 1_700_000_000.0, "allowed": True, "cost": 1, "meta": "günther"}
    with pytest.raises(TypeError, match="meta must be str or bytes"):
        limiter.check("login", "a", meta=5)  # type: ignore[arg-type]


def test_acquire_waits_until_it_is_admitted(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"api": "gcra 20/s burst 1"}, prefix=prefix, timeout=5.0)
    began = time.monotonic()
    assert all(limiter.acquire("api", "a", timeout=30.0) for _ in range(4))
    assert time.monotonic() - began >= 0.149
    assert not limiter.acquire("api", "never", cost=2)


def test_acquire_can_be_interrupted() -> None:
    limiter = Limiter(policies={"api": "1/hour"})
    limiter.check("api", "a")

    def interrupt() -> None:
        while not limiter.waiting("api", "a"):
            time.sleep(0.001)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    # A shell starts its background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            limiter.acquire("api", "a")
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    while limiter.waiting("api", "a"):
        time.sleep(0.001)


@pytest.mark.parametrize("secret", ["SECRET-of-the-test-0123456789", b"SECRET-of-the-test-0123456789"])
def test_a_key_secret_names_other_keys(redis_url: str, prefix: str, secret: str | bytes) -> None:
    def left(**options: Any) -> int:
        return Limiter(redis_url, prefix=prefix, timeout=5.0, **options).peek("5/hour", "203.0.113.7").remaining

    Limiter(redis_url, prefix=prefix, timeout=5.0, key_secret=secret).check("5/hour", "203.0.113.7")
    assert [left(key_secret="SECRET-of-the-test-0123456789"), left(key_secret=None), left()] == [4, 5, 5]
    for wrong in ("SECRET", 7):
        with pytest.raises((ConfigError, TypeError), match="key_secret") as caught:
            Limiter(redis_url, key_secret=wrong)  # type: ignore[arg-type]
        assert "SECRET" not in str(caught.value)


def test_a_manual_clock_replaces_waiting() -> None:
    clock = ManualClock()
    limiter = Limiter(policies={"login": "20/minute"}, clock=clock)
    assert all(limiter.check("login", "alice") for _ in range(20))
    assert not limiter.check("login", "alice")
    clock.advance(63)
    assert limiter.check("login", "alice")
    assert clock.now() == 1_700_000_063.0
    assert repr(clock) == "ManualClock(now=1700000063.0)"


def test_a_decision_is_plain_data() -> None:
    clock = ManualClock(now=1_700_000_000.0)
    limiter = Limiter(policies={"it's": "5/10s; 100/hour"}, clock=clock)
    decision = limiter.check("it's", "a\nb")
    assert repr(decision) == (
        "Decision(allowed=True, policy=\"it's\", key='a\\nb', cost=1, granted=1, limit=5, remaining=4, "
        f"retry_after=0.0, next_after=0.0, reset_after={decision.reset_after})"
    )
    with pytest.raises(AttributeError):
        decision.allowed = True  # type: ignore[misc]
    peeked, other = limiter.peek("it's", "a\nb"), limiter.check("it's", "a\nb")
    assert peeked.granted == 0 and decision != peeked and decision != other and decision != 5
    limiter.clear("it's", "a\nb")
    same = limiter.check("it's", "a\nb")
    assert decision == same
    assert hash(decision) == hash(same)
    fields = json.loads(json.dumps(decision.as_dict()))
    assert fields["allowed"] is True and fields["limits"][1]["limit"] == 100 and "decisions" not in fields
    assert decision.reset_at == 1_700_000_000.0 + decision.reset_after
    assert decision.limits[0] == limiter.check("it's", "c").limits[0]
    assert "algorithm='sliding-window'" in repr(decision.limits[0])
    whole = limiter.check_all([("1/s", "a"), ("2/s", "a")])
    assert len(whole.as_dict()["decisions"]) == 2
    delayed = [limiter.check("leaky-bucket 10/s", "k") for _ in range(2)][1]
    assert delayed.delay == 0.1 and "delay=0.1" in repr(delayed)


def test_policies_and_limits_are_values() -> None:
    limit = Limit("gcra", 100, period=1.0, burst=200)
    assert (limit.algorithm, limit.count, limit.period, limit.burst, limit.capacity) == ("gcra", 100, 1.0, 200, 200)
    assert str(limit) == "gcra 100/s burst 200"
    assert limit == Limit("GCRA", 100, "1s", burst=200) and hash(limit) == hash(Limit("gcra", 100, 1, burst=200))
    assert limit != Limit("gcra", 100, 1.0)
    assert Limit("concurrency", 8).period == 60.0
    assert Limit("calendar-window", 5, "month") != Limit("calendar-window", 5, "30 days")

    policy = Policy([limit, "20/minute; 5/3s"], block_for="10m", name="api")
    assert [str(one) for one in policy.limits] == ["gcra 100/s burst 200", "20/minute", "5/3s"]
    assert (policy.name, policy.block_for, policy.shadow, policy.journal) == ("api", 600.0, False, 0)
    assert Policy("20 per MINUTE") == Policy("20/minute") and Policy("20/minute").name == "20/minute"
    assert len({Policy("20/minute"), Policy("20 per minute"), Policy("21/minute")}) == 2

    names = {"Limit": Limit, "Policy": Policy}
    rich = Policy(
        [
            Limit("token-bucket", 5, "week", initial=1),
            Limit("sliding-window", 9, 0.5, precision=7),
            Limit("calendar-window", 5, "month", from_="Day 15 at 06:00", in_="europe/berlin"),
        ],
        on_store_error="open",
        shadow=True,
        count_denied=True,
        journal=3,
    )
    for value in (limit, policy, rich, *rich.limits, Limit("calendar-window", 5, "month"), Limit("gcra", 1, 1e-3)):
        assert eval(repr(value), names) == value
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value


def test_policies_can_be_given_in_every_way(prefix: str) -> None:
    limiter = Limiter(
        policies={
            "text": "5/s",
            "limit": Limit("fixed-window", 5, 1),
            "list": ["5/s", Limit("fixed-window", 5, 1)],
            "policy": Policy("5/s", shadow=True),
            "written": {"limits": [{"algorithm": "gcra", "count": 5, "period": "1s"}], "shadow": True},
        }
    )
    for name in ("text", "limit", "list", "policy", "written"):
        assert limiter.check(name, "k").limit == 5
        assert limiter.policy(name).name == name
    assert limiter.policy("written").shadow
    assert limiter.check(Policy("3/s"), "k").policy == "3/s"
    for wrong in (
        {"api": {"limits": "5/s", "shadwo": True}},
        {"api": {}},
        {"api": []},
        {"api": "5"},
        {"": "5/s"},
        {5: "5/s"},
    ):
        with pytest.raises(PolicyError):
            Limiter(policies=wrong)  # type: ignore[arg-type]
    for kind in ({"api": 5}, {"api": [5]}, ["5/s"]):
        with pytest.raises(TypeError):
            Limiter(policies=kind)  # type: ignore[arg-type]
    for limits in (5, {"limits": "5/s"}, [5], None):
        with pytest.raises(TypeError):
            Policy(limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("nonsense", 1, 1), {}),
        (("gcra", -1, 1), {}),
        (("gcra", True, 1), {}),
        (("gcra", 1.5, 1), {}),
        (("gcra", 1), {}),
        (("gcra", 1, 0), {}),
        (("gcra", 1, float("nan")), {}),
        (("gcra", 1, "5 fortnights"), {}),
        (("gcra", 10**13, 1), {}),
        (("fixed-window", 1, 1), {"burst": 5}),
        (("gcra", 1, 1), {"initial": 1}),
        (("sliding-window", 1, 1), {"precision": 0}),
        (("calendar-window", 1, "month"), {"from_": "day 32"}),
        (("calendar-window", 1, "week"), {"from_": "day 3"}),
        (("calendar-window", 1, "2 days"), {"in_": "Europe/Berlin"}),
        (("calendar-window", 1, "day"), {"in_": "Europe/Berlim"}),
        (("gcra", 1, "day"), {"in_": "Europe/Berlin"}),
    ],
)
def test_wrong_limits_raise(arguments: tuple[object, ...], options: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        Limit(*arguments, **options)  # type: ignore[arg-type]


def test_a_file_is_read_linted_and_reloaded(tmp_path: Path, store: str, prefix: str) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text('store = "memory://"\n[policies]\nlogin = "2/hour"\n')
    with Limiter.from_file(str(path), store=store, prefix=prefix, timeout=5.0) as limiter:
        assert limiter.check("login", "a").remaining == 1
        path.write_text('[policies]\nlogin = "5/hour"\n')
        limiter.reload()
        assert limiter.peek("login", "a").remaining == 4
        path.write_text('[policies]\nlogin = "5/fortnight"\n')
        with pytest.raises(PolicyError):
            limiter.reload()
        assert limiter.peek("login", "a").remaining == 4
    path.write_text('[policies]\nlogin = "10/10s; 600/600s"\n')
    (warning,) = lint(path)
    assert isinstance(warning, Warning)
    assert (warning.policy, warning.file, warning.line) == ("login", str(path), 2)
    assert warning.message in str(warning) and warning.column is not None


def test_costs_may_be_whole_numbers_of_other_libraries() -> None:
    class Whole:
        def __index__(self) -> int:
            return 3

    assert Limiter().check("5/s", "k", Whole()).remaining == 2  # type: ignore[arg-type]


def test_everything_is_documented() -> None:
    for noun in (Limiter, Decision, Policy, Limit, ManualClock, Attempt):
        assert noun.__doc__ and noun.__module__ == "tidegate"
        for name, member in vars(noun).items():
            if not name.startswith("_"):
                assert getattr(member, "__doc__", None), f"{noun.__name__}.{name}"


def test_a_calendar_of_ones_own() -> None:
    limit = Limit("calendar-window", 5, "month", from_="Day 15 at 06:00", in_="europe/berlin")
    assert (limit.from_, limit.in_) == ("day 15 at 06:00", "Europe/Berlin")
    assert str(limit) == "calendar-window 5/month from day 15 at 06:00 in Europe/Berlin"
    assert eval(repr(limit)) == limit == Policy(str(limit)).limits[0]
    utc = Limit("calendar-window", 5, "week", from_="monday", in_="UTC")
    assert (utc.from_, utc.in_, utc) == (None, None, Limit("calendar-window", 5, "week"))
    # 29 March 2026 has 23 hours in Berlin.
    clock = ManualClock(now=1774738800.0)
    with Limiter(policies={"p": "calendar-window 1/day in Europe/Berlin"}, clock=clock) as limiter:
        assert limiter.check("p", "k").reset_after == 23 * 3600
        clock.advance(23 * 3600)
        assert limiter.check("p", "k")
