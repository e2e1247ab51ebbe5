"""Tasks continue within the callback that brings their answers, and notice no difference from the usual way."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import time
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from loops import LOOPS, run, until
from tidegate import AsyncLimiter, Decision, StoreError

name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="")


def task_of_python(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **named: Any) -> Any:
    """Makes a task as asyncio does without its C module."""
    return asyncio.tasks._PyTask(coroutine, loop=loop, **named)  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("factory", [None, task_of_python], ids=["C", "Python"])
def test_a_task_keeps_its_name_and_its_context(loop: str, factory: Any, redis_url: str, prefix: str) -> None:
    async def work(number: int, limiter: AsyncLimiter) -> list[int]:
        name.set(f"task {number}")
        asyncio.current_task().set_name(f"task {number}")  # type: ignore[union-attr]
        remaining = []
        for _ in range(20):
            remaining.append((await limiter.check("20/hour", f"{prefix}{number}")).remaining)
            assert name.get() == asyncio.current_task().get_name() == f"task {number}"  # type: ignore[union-attr]
        return remaining

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        limiter = AsyncLimiter(redis_url, timeout=30.0)
        ended = await asyncio.gather(*[work(number, limiter) for number in range(30)])
        assert ended == [list(range(19, -1, -1))] * 30

    run(main, loop)


@pytest.mark.parametrize("factory", [None, task_of_python], ids=["C", "Python"])
def test_a_cancelled_task_ends_with_the_message_and_the_others_go_on(factory: Any, redis_url: str, prefix: str) -> None:
    messages: list[Any] = []

    async def work(number: int, limiter: AsyncLimiter) -> Decision:
        try:
            return await limiter.check("100/hour", f"{prefix}{number}")
        except asyncio.CancelledError as error:
            messages.extend(error.args)
            raise

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        limiter = AsyncLimiter(redis_url, timeout=30.0)
        tasks = [asyncio.ensure_future(work(number, limiter)) for number in range(10)]
        await asyncio.sleep(0)
        assert tasks[3].cancel("enough")
        assert "wait_for=" in repr(tasks[4])
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(ended[3], asyncio.CancelledError) and tasks[3].cancelled() and messages == ["enough"]
        assert [type(one) for one in ended].count(Decision) == 9
        assert await limiter.acquire("1/minute", f"{prefix}wait")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acquire("1/minute", f"{prefix}wait", timeout=600), 0.05)
        await until(lambda: limiter.waiting("1/minute", f"{prefix}wait") == 0)

    run(main)


def test_an_error_is_raised_where_the_call_is_awaited() -> None:
    async def main() -> None:
        limiter = AsyncLimiter("redis://127.0.0.1:1", timeout=5.0, on_store_error="raise")
        ended = await asyncio.gather(
            *[limiter.check("1/s", str(number)) for number in range(10)], return_exceptions=True
        )
        assert [type(one) for one in ended] == [StoreError] * 10

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_one_task_leaves_the_answers_of_the_others(
    loop: str, interrupt: type[BaseException], redis_url: str, prefix: str
) -> None:
    made = LOOPS[loop]()
    limiter = AsyncLimiter(redis_url, timeout=30.0)
    answered: list[int] = []

    async def work(number: int) -> None:
        await limiter.check("10/hour", f"{prefix}{number}")
        if number == 2:
            raise interrupt
        answered.append(number)

    async def main() -> list[asyncio.Task[None]]:
        await limiter.ping()
        return [made.create_task(work(number)) for number in range(8)]

    try:
        tasks = made.run_until_complete(main())
        with pytest.raises(interrupt):
            made.run_until_complete(asyncio.wait(tasks))
        made.run_until_complete(asyncio.wait(tasks, timeout=30))
        assert sorted(answered) == [0, 1, 3, 4, 5, 6, 7]
        with pytest.raises(interrupt):
            tasks[2].result()
    finally:
        made.close()


def test_debug_mode_names_the_task_that_was_slow(redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    async def slow(limiter: AsyncLimiter, number: int) -> None:
        await limiter.check("10/hour", f"{prefix}{number}")
        if number == 2:
            time.sleep(0.2)

    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0.15
        limiter = AsyncLimiter(redis_url, timeout=30.0)
        tasks = [asyncio.create_task(slow(limiter, number), name=f"task {number}") for number in range(4)]
        await asyncio.wait(tasks)

    asyncio.run(main(), debug=True)
    assert "task 2" in caplog.text, caplog.text


def test_a_task_that_never_continues_is_freed_with_its_loop(redis_url: str, prefix: str) -> None:
    limiter = AsyncLimiter(redis_url, timeout=30.0)

    async def work() -> None:
        await limiter.acquire("1/minute", f"{prefix}a")
        await limiter.acquire("1/minute", f"{prefix}a", timeout=600)

    async def begin() -> weakref.ref[Any]:
        task = asyncio.ensure_future(work())
        await until(lambda: limiter.waiting("1/minute", f"{prefix}a") == 1)
        return weakref.ref(task)

    loop = asyncio.new_event_loop()
    # The test destroys a pending task on purpose, and asyncio would report it.
    loop.set_exception_handler(lambda loop, context: None)
    waiting = loop.run_until_complete(begin())
    assert waiting() is not None
    loop.close()
    del loop
    gc.collect()
    assert waiting() is None
