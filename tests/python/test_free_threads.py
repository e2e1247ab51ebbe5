"""Objects that threads use at the same moment. A Python without a global lock switches threads anywhere, and the usual
one does here as often as it can."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tidegate import AsyncLimiter, Decision, Hold, Limiter, _tracing

THREADS = 4
ROUNDS = 100
TWICE = "a call cannot be awaited twice: make it again, or keep its result"


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """Calls the functions, each on a thread, from one moment on. Returns their results."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], Any]) -> Any:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


@pytest.mark.skipif(not hasattr(sys, "_is_gil_enabled"), reason="this Python always has a global lock")
def test_the_module_does_not_enable_the_global_lock() -> None:
    code = "import sys; before = sys._is_gil_enabled(); import tidegate; assert sys._is_gil_enabled() == before"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def awaited_at_once(*calls: Any) -> list[Any]:
    """Awaits the calls, each in a loop on a thread, from one moment on. Returns their answers, or texts of errors."""
    barrier = threading.Barrier(len(calls))

    async def awaited(call: Any) -> Any:
        barrier.wait()
        try:
            return await call
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: asyncio.run(awaited(call)), calls))


def test_one_of_several_threads_awaits_a_call() -> None:
    limiter = AsyncLimiter(policies={"api": "100000/day"})
    for _ in range(ROUNDS):
        call = limiter.check("api", "one")
        answers = awaited_at_once(*[call] * THREADS)
        [decision] = [answer for answer in answers if isinstance(answer, Decision)]
        assert decision.allowed
        assert [a for a in answers if a is not decision] == [TWICE] * (THREADS - 1)
    assert awaited_at_once(limiter.peek("api", "one"))[0].remaining == 100_000 - ROUNDS


def test_a_call_is_closed_while_another_thread_awaits_it() -> None:
    limiter = AsyncLimiter(policies={"api": "100000/day"})
    for _ in range(ROUNDS):
        call: Any = limiter.check("api", "one")
        [answer], _ = at_once(partial(awaited_at_once, call), call.close)
        assert isinstance(answer, Decision) or answer == TWICE


def test_several_threads_release_a_hold(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"exports": "concurrency 2"}, prefix=prefix, timeout=60.0)
    with limiter.hold("exports", "one"):
        for _ in range(ROUNDS // 4):
            hold: Hold = limiter.hold("exports", "one")
            lost = at_once(hold.release, hold.release, partial(getattr, hold, "lost"), partial(repr, hold))[2]
            assert (lost, hold.released) == (False, True)
            assert limiter.peek("exports", "one").remaining == 1, "it was given back once"


def test_the_loops_of_several_threads_begin_with_a_limiter_at_once(redis_url: str, prefix: str) -> None:
    """Only one of them may read replies, and only as long as it is alone."""

    def check(limiter: AsyncLimiter) -> int:
        async def checks() -> int:
            return sum([bool(await limiter.check("api", "one")) for _ in range(20)])

        return asyncio.run(checks())

    for number in range(ROUNDS // 4):
        limiter = AsyncLimiter(redis_url, policies={"api": "50/day"}, prefix=f"{prefix}-{number}", timeout=60.0)
        admitted = at_once(*[partial(check, limiter)] * THREADS)
        assert sum(admitted) == 50
        asyncio.run(limiter.close())


class Awaited:
    """A call that was made, for a task and for other threads."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def __await__(self) -> Any:
        return self.future


async def answer_of(call: Awaited) -> Decision:
    decision: Decision = await call
    return decision


def test_the_answers_of_a_loop_are_looked_at_by_another_thread(redis_url: str, prefix: str) -> None:
    limiter = AsyncLimiter(redis_url, policies={"api": "100000/day"}, prefix=prefix, timeout=60.0)
    made: list[Any] = []
    ended = threading.Event()

    async def serve() -> int:
        admitted = 0
        try:
            for _ in range(10):
                futures = [limiter.check("api", str(number)).__await__() for number in range(50)]
                made.extend(futures)
                admitted += sum(map(bool, await asyncio.gather(*(answer_of(Awaited(one)) for one in futures))))
            return admitted
        finally:
            await limiter.close()
            ended.set()

    def look() -> int:
        answered = 0
        while not ended.is_set():
            for future in made[-60:]:
                with contextlib.suppress(AttributeError, RuntimeError):  # it was answered at once, or has no answer yet
                    answered += future.done() and future.result().allowed
                    repr(future._asyncio_future_blocking)
        return answered

    assert at_once(lambda: asyncio.run(serve()), look)[0] == 500


def test_limiters_are_traced_while_other_threads_make_them() -> None:
    def make(limiter: Limiter) -> list[Any]:
        return [_tracing.to_async(limiter) for _ in range(20)]

    for _ in range(ROUNDS):
        limiter = Limiter()
        some, more, _ = at_once(*[partial(make, limiter)] * 2, partial(_tracing.trace_calls, limiter, unchanged))
        assert all(id(one) in _tracing.TRACED for one in [limiter, *some, *more])


def unchanged(limiter: Any) -> Any:
    return limiter
