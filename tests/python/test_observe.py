"""Every store learns the limits that responses announce, through both limiters."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tidegate import AsyncLimiter, ConfigError, Limiter, ManualClock, Policy
from tidegate.outgoing import Observation

START = 1_700_000_000.0


def test_usage_is_raised_until_its_reset(store: str, prefix: str) -> None:
    clock = ManualClock(START)
    with Limiter(store=store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
        said = Observation(limit=10, remaining=2, reset_after=30)
        seen = limiter.observe("10/minute", "k", said)
        assert (seen.limit, seen.remaining, seen.learned) == (10, 2, True)
        assert [bool(limiter.check("10/minute", "k")) for _ in range(3)] == [True, True, False]
        denied = limiter.peek("10/minute", "k")
        assert denied.learned and denied.retry_after == 30.0
        assert "learned=True" in repr(denied) and denied.as_dict()["learned"]
        # A later observation gives nothing back.
        assert limiter.observe("10/minute", "k", [Observation(limit=10, remaining=10, reset_after=60)]).remaining == 0
        clock.advance(30)
        assert limiter.peek("10/minute", "k").remaining == 8


def test_a_wait_blocks_the_key_and_is_not_shortened(store: str, prefix: str) -> None:
    clock = ManualClock(START)
    with Limiter(store=store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
        policy = Policy.learned()
        assert limiter.check(policy, "k")
        limiter.observe(policy, "k", Observation(retry_after=timedelta(seconds=20)))
        limiter.observe(policy, "k", Observation(retry_after=5))
        denied = limiter.check(policy, "k")
        assert not denied and denied.learned and denied.retry_after == 20.0
        assert limiter.check(policy, "other")
        clock.advance(20)
        assert limiter.check(policy, "k")


def test_calls_on_their_way_are_counted(store: str, prefix: str) -> None:
    clock = ManualClock(START)
    with Limiter(store=store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
        policy = Policy.learned()
        first, *_others = [limiter.check(policy, "k") for _ in range(4)]
        # The first call found only itself used, and three more are on their way.
        seen = limiter.observe(policy, "k", Observation(limit=10, remaining=9, reset_after=30), decision=first)
        assert (seen.limit, seen.remaining) == (10, 6)


def test_the_async_limiter_learns_too(store: str, prefix: str) -> None:
    async def learn() -> None:
        async with AsyncLimiter(store=store, prefix=prefix, timeout=20.0) as limiter:
            decision = await limiter.check(Policy.learned(), "k")
            said = Observation(limit=1, remaining=0, reset_after=60, window=60, unit="requests", scope="key")
            await limiter.observe(Policy.learned(), "k", [said], decision=decision)
            denied = await limiter.acquire(Policy.learned(), "k", timeout=0.01)
            assert not denied and denied.learned

    asyncio.run(learn())


def test_a_paced_policy_keeps_a_margin() -> None:
    paced = Policy("100/10s; token-bucket 10/s", name="api").paced()
    assert paced.name == "api"
    assert [limit.period for limit in paced.limits] == [10.1, 1.0]
    assert (paced.limits[0].precision, paced.limits[1].burst) == (200, 9)
    assert Policy("100/10s").paced(timedelta(seconds=1)).limits[0].period == 11.0
    with pytest.raises(Exception, match="at most a minute"):
        Policy("1/s").paced(61)


def test_bad_input_is_an_error() -> None:
    with Limiter() as limiter:
        for wrong in (None, "60", [1], 5):
            with pytest.raises(TypeError, match="Observation"):
                limiter.observe("1/s", "k", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            limiter.observe("1/s", "k", [], decision=1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="scope"):
            Observation(scope="world")  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            Observation(reset_after=-1)
