"""Turns: how `acquire` waits for buckets."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tidegate import AsyncLimiter, Decision, Limiter, ManualClock

START = 1_700_000_000.0


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, redis_url: str) -> str:
    return "memory://" if request.param == "memory" else redis_url


def test_a_turn_of_a_cancelled_task_goes_to_the_next_one(store: str, prefix: str) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with AsyncLimiter(store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
            policy = "gcra 1/s burst 1"
            assert await limiter.check(policy, "k")
            tasks: list[asyncio.Task[Decision]] = []
            for number in range(4):
                tasks.append(asyncio.create_task(limiter.acquire(policy, "k")))
                while limiter.waiting(policy, "k") <= number:
                    await asyncio.sleep(0.001)
            denied = await limiter.acquire(policy, "k", timeout=timedelta(seconds=4))
            assert not denied.allowed and denied.retry_after == 5.0
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
            for second, task in enumerate((tasks[0], tasks[2], tasks[3]), 1):
                assert not task.done()
                clock.advance(1.0)
                decision = await asyncio.wait_for(task, 20)
                assert decision.allowed and decision.retry_after == 0.0, second
            # Waits until the last turn was given back.
            while (await limiter.peek(policy, "k")).next_after != 1.0:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_turn_is_settled_as_of_its_moment(store: str, prefix: str) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        async with AsyncLimiter(store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
            policy = "gcra 1/s burst 5"
            await limiter.check(policy, "k", 5)
            turn = asyncio.create_task(limiter.acquire(policy, "k", 4))
            while limiter.waiting(policy, "k") < 1:
                await asyncio.sleep(0.001)
            clock.advance(4.0)
            decision = await asyncio.wait_for(turn, 20)
            clock.advance(1.0)
            await limiter.settle(decision, 1)
            assert (await limiter.peek(policy, "k")).remaining == 4

    asyncio.run(main())


def test_a_turn_that_is_late_is_denied_at_once(store: str, prefix: str) -> None:
    with Limiter(store, prefix=prefix, clock=ManualClock(START), timeout=20.0) as limiter:
        policy = "token-bucket 1/s burst 2; leaky-bucket 10/s burst 5"
        assert limiter.check(policy, "k", 2)
        late = limiter.acquire(policy, "k", timeout=0.9)
        assert (late.allowed, late.retry_after) == (False, 1.0)
