"""The event loop that uses a limiter reads the replies of Redis itself, as long as it is the only loop that does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client import Servers
from loops import LOOPS, run, until
from tidegate import AsyncLimiter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads read")

READERS = [name for name in LOOPS if name != "fileless"]
MUCH = "1000000/hour"


def count_calls(loop: asyncio.AbstractEventLoop) -> Counter[str]:
    """Counts the calls into the loop from now on, by the kind of the file that it watches, and by other threads."""
    calls: Counter[str] = Counter()
    add_reader, call_soon_threadsafe = loop.add_reader, loop.call_soon_threadsafe

    def counted(kind: str, callback: Callable[..., object]) -> Callable[..., None]:
        def called(*args: object) -> None:
            calls[kind] += 1
            callback(*args)

        return called

    def add_counted_reader(file: int, callback: Callable[..., object], *args: object) -> Any:
        return add_reader(file, counted(os.readlink(f"/proc/self/fd/{file}"), callback), *args)

    def call_counted(callback: Callable[..., object], *args: object) -> Any:
        return call_soon_threadsafe(counted("thread", callback), *args)

    counting: Any = loop
    counting.add_reader, counting.call_soon_threadsafe, counting.calls = add_counted_reader, call_counted, calls
    return calls


async def wakes_by_threads(limiter: AsyncLimiter, checks: int) -> int:
    """Returns how often threads wake this loop while it makes this many checks, one after the other."""
    loop: Any = asyncio.get_running_loop()
    calls: Counter[str] = loop.calls if hasattr(loop, "calls") else count_calls(loop)
    # The first checks connect.
    for _ in range(5):
        await limiter.check(MUCH, "a")
    before = calls.copy()
    for _ in range(checks):
        assert await limiter.check(MUCH, "a")
    made = calls - before
    return made["anon_inode:[eventfd]"] + made["thread"]


async def threads_answer(limiter: AsyncLimiter, checks: int) -> bool:
    """True if a thread wakes this loop for every answer. If the loop reads, hardly any answer needs a thread.

    The engine's thread reads replies that a busy loop leaves unread for 12 ms. So on a busy machine it may now and then
    be faster than the loop. If the thread is meant to read, it wakes the loop for every answer, in every attempt.
    """
    for _ in range(20):
        wakes = await wakes_by_threads(limiter, checks)
        if wakes < checks / 2:
            return False
    assert wakes >= checks
    return True


def file_writes() -> int:
    """Returns how often this thread has written to files, without sockets. One thread wakes another by a file."""
    return int(Path("/proc/thread-self/io").read_text().split("syscw:")[1].split()[0])


def files(kind: str = "") -> int:
    """Returns the number of open files of a kind. The collector runs first, because it closes those of dead loops."""
    gc.collect()
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the directory that is being listed
            found += kind in os.readlink(one)
    return found


def limiter_of(url: str, prefix: str) -> AsyncLimiter:
    return AsyncLimiter(url, prefix=prefix, timeout=5.0, on_store_error="raise")


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loop_reads_replies_itself(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> bool:
        return await threads_answer(limiter_of(redis_url, prefix), 500)

    assert run(main, loop) == (loop not in READERS)


@pytest.mark.parametrize("loop", READERS)
def test_a_check_wakes_no_thread(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> None:
        limiter = limiter_of(redis_url, prefix)
        # As above: a check that takes longer than 12 ms calls the engine's thread.
        for _ in range(20):
            await wakes_by_threads(limiter, 0)
            before = file_writes()
            await wakes_by_threads(limiter, 200)
            if file_writes() - before < 100:
                return
        raise AssertionError("checks wake the engine's thread")

    run(main, loop)


@pytest.mark.parametrize("loop", READERS)
def test_the_next_loop_reads_when_one_was_closed(loop: str, redis_url: str, prefix: str) -> None:
    limiter = limiter_of(redis_url, prefix)
    for _ in range(5):
        assert not run(lambda: threads_answer(limiter, 200), loop)
    before = files()
    for _ in range(50):
        run(lambda: wakes_by_threads(limiter, 1), loop)
    assert files() <= before


@pytest.mark.parametrize("loop", READERS)
def test_threads_read_for_two_loops(loop: str, redis_url: str, prefix: str) -> None:
    limiter = limiter_of(redis_url, prefix)
    first, second = LOOPS[loop](), LOOPS[loop]()
    assert not first.run_until_complete(threads_answer(limiter, 200))
    reading = files("eventpoll")
    # The first loop is open but does not run, so no answer may depend on it.
    assert second.run_until_complete(threads_answer(limiter, 200))
    assert first.run_until_complete(threads_answer(limiter, 200))
    # The first loop no longer watches the limiter's file.
    assert files("eventpoll") == reading - 1
    # Limiters that share connections also share their reader.
    assert first.run_until_complete(threads_answer(limiter.to_blocking().to_async(), 200))
    first.close()
    second.close()


@pytest.mark.parametrize("loop", READERS)
def test_a_dropped_limiter_leaves_nothing_in_the_loop(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> None:
        async def use() -> None:
            assert await limiter_of(redis_url, prefix).check(MUCH, "a")

        await use()
        before = files()
        for _ in range(50):
            await use()
        # The threads of the dropped limiters close their connections.
        await until(lambda: files() <= before)

    run(main, loop)


@pytest.mark.parametrize("loop", READERS)
def test_a_limiter_may_be_dropped_on_another_thread(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> None:
        assert await limiter_of(redis_url, prefix).check(MUCH, "a")
        before = files()
        kept = [limiter_of(redis_url, prefix) for _ in range(20)]
        for limiter in kept:
            assert await limiter.check(MUCH, "a")
        del limiter
        assert files() >= before + 20
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        await until(lambda: files() <= before)

    run(main, loop)


def test_a_loop_that_was_not_closed_is_collected_with_its_limiter(redis_url: str, prefix: str) -> None:
    def use() -> None:
        limiter = limiter_of(redis_url, prefix)
        loop = asyncio.SelectorEventLoop()
        assert loop.run_until_complete(limiter.check(MUCH, "a"))
        loop.limiter = limiter  # type: ignore[attr-defined]

    with warnings.catch_warnings():
        # Python warns of loops that are not closed.
        warnings.simplefilter("ignore", ResourceWarning)
        use()
        before = files()
        for _ in range(20):
            use()
        end = time.monotonic() + 30
        while files() > before:
            assert time.monotonic() < end, f"{files()} files, and {before} before"
            time.sleep(0.005)


@pytest.mark.parametrize("loop", READERS)
@pytest.mark.parametrize("tasks", [4, 8, 12])
def test_calls_that_were_answered_together_send_their_next_calls_together(loop: str, tasks: int, prefix: str) -> None:
    rounds = 100
    with Servers("single") as servers:

        async def main() -> int:
            limiter = limiter_of(servers.url, prefix)
            await limiter.check(MUCH, "warm")

            async def ask(key: str) -> None:
                for _ in range(rounds):
                    assert await limiter.check(MUCH, key)

            before = scripts(servers)
            await asyncio.gather(*(ask(f"k{number}") for number in range(tasks)))
            return scripts(servers) - before

        calls: int = run(main, loop)
    # Two calls in each round would mean that one task goes alone, and the others after it.
    assert calls <= rounds * 1.5


def scripts(servers: Servers) -> int:
    stats: str = servers.command("INFO", "commandstats")
    line = next(line for line in stats.split() if line.startswith("cmdstat_evalsha:"))
    return int(line.split("calls=")[1].split(",")[0])


def test_a_task_that_stops_the_loop_does_not_delay_other_tasks(redis_url: str, prefix: str) -> None:
    """Calls that wait for their batch are sent when the loop goes on, and another loop does not wait for them."""
    limiter = limiter_of(redis_url, prefix)
    loop = asyncio.new_event_loop()

    async def ask(key: str, then: Callable[[], None]) -> None:
        await limiter.check(MUCH, key)
        then()
        assert (await limiter.check(MUCH, key)).allowed

    def interrupted() -> None:
        raise KeyboardInterrupt

    loop.run_until_complete(limiter.check(MUCH, "warm"))
    interrupter = loop.create_task(ask("k0", interrupted))
    others = [loop.create_task(ask(f"k{number}", lambda: None)) for number in range(1, 5)]
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert interrupter.done() and not all(other.done() for other in others)
    with pytest.raises(KeyboardInterrupt):
        interrupter.result()

    async def again() -> None:
        assert await limiter.check(MUCH, "other")

    run(again)
    loop.run_until_complete(asyncio.gather(*others))
    loop.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_the_context_of_a_call_is_not_kept(loop: str, redis_url: str, prefix: str) -> None:
    class Request:
        """Stands for an object that a framework keeps in the context of a task."""

    current: contextvars.ContextVar[Request] = contextvars.ContextVar("current")

    async def ask(limiter: AsyncLimiter) -> weakref.ref[Request]:
        request = Request()
        current.set(request)
        assert await limiter.check(MUCH, "a")
        return weakref.ref(request)

    async def main() -> None:
        limiter = limiter_of(redis_url, prefix)
        first = await asyncio.create_task(ask(limiter))
        await asyncio.sleep(0)
        gc.collect()
        assert first() is None

    run(main, loop)
