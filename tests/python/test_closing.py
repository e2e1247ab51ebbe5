"""A limiter that is closed ends what waits, and gives back what it has."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from tidegate import AsyncLimiter, ClosedError, Limiter, ManualClock

HELD = "concurrency 2 ttl 60s"
PACED = "gcra 1/s burst 1"
START = 1_700_000_000.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_threads_that_wait_for_a_hold_end_before_holds_go_back(shared_store: str, prefix: str) -> None:
    other = Limiter(shared_store, prefix=prefix, timeout=20.0)
    limiter = Limiter(shared_store, prefix=prefix, timeout=20.0)
    began: list[str] = []

    def work() -> None:
        try:
            with limiter.hold(HELD, "k", timeout=None):
                began.append("work")
        except ClosedError:
            began.append("closed")

    held = [limiter.hold(HELD, "k") for _ in range(2)]
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: limiter.waiting(HELD, "k") == 4)
    limiter.close()
    assert other.peek(HELD, "k").remaining == 2
    for thread in threads:
        thread.join(20)
    assert began == ["closed"] * 4
    for hold in held:
        assert hold.lost
        hold.release()
    assert other.peek(HELD, "k").remaining == 2


def test_tasks_that_wait_for_a_hold_end_before_holds_go_back(shared_store: str, prefix: str) -> None:
    async def main() -> None:
        limiter = AsyncLimiter(shared_store, prefix=prefix, timeout=20.0)
        began: list[str] = []

        async def work() -> None:
            async with limiter.hold(HELD, "k", timeout=None):
                began.append("work")

        held = [await limiter.hold(HELD, "k") for _ in range(2)]
        tasks = [asyncio.create_task(work()) for _ in range(4)]
        while limiter.waiting(HELD, "k") < 4:
            await asyncio.sleep(0.001)
        await limiter.close()
        async with AsyncLimiter(shared_store, prefix=prefix, timeout=20.0) as other:
            assert (await other.peek(HELD, "k")).remaining == 2
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(error) for error in ended] == [ClosedError] * 4
            for hold in held:
                await hold.release()
            assert (await other.peek(HELD, "k")).remaining == 2
        assert began == []

    asyncio.run(main())


def test_a_close_among_workers_leaves_no_unit_held(shared_store: str, prefix: str) -> None:
    async def round_of(number: int) -> None:
        limiter = AsyncLimiter(shared_store, prefix=prefix, timeout=20.0)
        key = f"k{number}"

        async def work() -> None:
            while True:
                async with limiter.hold(HELD, key, timeout=None):
                    await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(work()) for _ in range(6)]
        while limiter.waiting(HELD, key) < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.0005 * number)
        await limiter.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in ended] == [ClosedError] * 6
        async with AsyncLimiter(shared_store, prefix=prefix, timeout=20.0) as other:
            assert (await other.peek(HELD, key)).remaining == 2, number

    for number in range(20):
        asyncio.run(round_of(number))


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_turns_of_acquire_go_back(shared_store: str, prefix: str, kind: str) -> None:
    clock = ManualClock(START)
    other = Limiter(shared_store, prefix=prefix, clock=clock, timeout=20.0)
    limiter = Limiter(shared_store, prefix=prefix, clock=clock, timeout=20.0)
    assert other.check(PACED, "k")
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            limiter.acquire(PACED, "k")
        except ClosedError as error:
            ended.append(type(error))

    async def wait_all() -> None:
        calls = [limiter.to_async().acquire(PACED, "k") for _ in range(20)]
        ended.extend(type(error) for error in await asyncio.gather(*calls, return_exceptions=True))  # type: ignore[misc]

    waits: list[Callable[[], None]] = [wait] * 20 if kind == "threads" else [lambda: asyncio.run(wait_all())]
    threads = [threading.Thread(target=wait) for wait in waits]
    for thread in threads:
        thread.start()
    until(lambda: limiter.waiting(PACED, "k") == 20)
    limiter.close()
    assert other.peek(PACED, "k").retry_after == 1.0
    for thread in threads:
        thread.join(20)
    assert ended == [ClosedError] * 20
