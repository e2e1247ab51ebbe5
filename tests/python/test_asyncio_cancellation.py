"""Calls of AsyncLimiter after their await was cancelled, or their loop was closed."""

from __future__ import annotations

import asyncio
import random

import pytest

from loops import LOOPS, run, until
from tidegate import AsyncLimiter, Decision, ManualClock


@pytest.mark.parametrize("loop", LOOPS)
def test_ten_thousand_in_flight_with_cancellations_count_exactly(loop: str, redis_url: str, prefix: str) -> None:
    limit, calls = 100_000, 10_000
    dice = random.Random(7)

    async def main() -> tuple[int, int, int]:
        limiter = AsyncLimiter(redis_url, policies={"api": f"fixed-window {limit}/hour"}, prefix=prefix, timeout=60.0)
        tasks = [asyncio.create_task(limiter.check("api", f"k{n % 50}")) for n in range(calls)]
        chosen = dice.sample(tasks, calls // 3)
        for task in chosen[: len(chosen) // 2]:
            task.cancel()
        await asyncio.sleep(0)
        for task in chosen[len(chosen) // 2 :]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        answered = [one for one in ended if isinstance(one, Decision)]
        cancelled = [one for one in ended if isinstance(one, asyncio.CancelledError)]
        assert len(answered) + len(cancelled) == calls and all(answered)
        # Each answered call has counted exactly once. A cancelled call in flight may have counted.
        used = sum([limit - (await limiter.peek("api", f"k{n}")).remaining for n in range(50)])
        return len(answered), used, len(cancelled)

    answered, used, cancelled = run(main, loop)
    assert cancelled > 0
    assert answered <= used <= answered + cancelled


def test_an_acquire_that_is_cancelled_leaves_the_queue(store: str, prefix: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = AsyncLimiter(store, policies={"api": "1/hour"}, prefix=prefix, timeout=5.0, clock=clock)
        await limiter.check("api", "a")
        first = asyncio.create_task(limiter.acquire("api", "a"))
        await until(lambda: limiter.waiting("api", "a") == 1)
        second = asyncio.create_task(limiter.acquire("api", "a"))
        await until(lambda: limiter.waiting("api", "a") == 2)
        first.cancel()
        await until(lambda: first.cancelled())
        assert limiter.waiting("api", "a") == 1 and not second.done()
        clock.advance(7_200)
        assert await asyncio.wait_for(second, 30)

    run(main)


def test_a_hold_whose_await_was_cancelled_is_given_back(store: str, prefix: str) -> None:
    async def main() -> None:
        limiter = AsyncLimiter(store, policies={"exports": "concurrency 3"}, prefix=prefix, timeout=60.0)
        await limiter.ping()

        async def work() -> None:
            async with limiter.hold("exports", "a"):
                await asyncio.sleep(60)

        async def is_free() -> bool:
            return (await limiter.peek("exports", "a")).remaining == 3

        for turns in range(12):
            tasks = [asyncio.create_task(work()) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await until(is_free)

    run(main)


def test_a_hold_whose_loop_was_closed_is_given_back(redis_url: str, prefix: str) -> None:
    limiter = AsyncLimiter(redis_url, policies={"exports": "concurrency 1"}, prefix=prefix, timeout=60.0)

    async def taken() -> None:
        await limiter.ping()
        task = asyncio.ensure_future(limiter.hold("exports", "a"))
        await asyncio.sleep(0)
        task.cancel()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(taken())
    loop.close()

    async def main() -> None:
        async def is_free() -> bool:
            return bool(await limiter.peek("exports", "a"))

        await until(is_free)

    run(main)
    del loop
