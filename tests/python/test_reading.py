"""The event loop that asks a limiter reads what Redis says, as long as it is the only one; nothing is left behind."""

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
from collections.abc import Callable
from pathlib import Path

import pytest

from client import Servers
from test_asyncio import LOOPS, run, until
from tidegate import AsyncLimiter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads read")

READERS = [name for name in LOOPS if name != "fileless"]
MUCH = "1000000/hour"


def sleeps() -> int:
    """How often the threads that would read have gone to sleep."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("tidegate-redis"):
            status = (task / "status").read_text()
            total += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return total


def files(kind: str = "") -> int:
    """How many files are open, of a kind. Loops and what belongs to them go when the collector finds them."""
    gc.collect()
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += kind in os.readlink(one)
    return found


def limiter_of(url: str, prefix: str) -> AsyncLimiter:
    return AsyncLimiter(url, prefix=prefix, timeout=5.0, on_store_error="raise")


async def slept_during(limiter: AsyncLimiter, checks: int) -> int:
    # What connects is over.
    for _ in range(5):
        await limiter.check(MUCH, "a")
    before = sleeps()
    for _ in range(checks):
        assert await limiter.check(MUCH, "a")
    return sleeps() - before


@pytest.mark.parametrize("loop", LOOPS)
def test_no_thread_stands_between(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> int:
        return await slept_during(limiter_of(redis_url, prefix), 500)

    slept: int = run(main, loop)
    if loop in READERS:
        assert slept < 250
    else:
        assert slept > 400


@pytest.mark.parametrize("loop", READERS)
def test_the_next_loop_reads_when_one_was_closed(loop: str, redis_url: str, prefix: str) -> None:
    limiter = limiter_of(redis_url, prefix)
    for _ in range(5):
        assert run(lambda: slept_during(limiter, 200), loop) < 100
    before = files()
    for _ in range(50):
        run(lambda: slept_during(limiter, 1), loop)
    assert files() <= before


@pytest.mark.parametrize("loop", READERS)
def test_threads_read_for_two_loops(loop: str, redis_url: str, prefix: str) -> None:
    limiter = limiter_of(redis_url, prefix)
    first, second = LOOPS[loop](), LOOPS[loop]()
    assert first.run_until_complete(slept_during(limiter, 200)) < 100
    reading = files("eventpoll")
    # The first is open and does not run: nobody may depend on it.
    assert second.run_until_complete(slept_during(limiter, 200)) > 150
    assert first.run_until_complete(slept_during(limiter, 200)) > 150
    # It was told that it reads no more.
    assert files("eventpoll") == reading - 1
    # The limiters that share connections share that too.
    assert first.run_until_complete(slept_during(limiter.to_blocking().to_async(), 200)) > 150
    first.close()
    second.close()


@pytest.mark.parametrize("loop", READERS)
def test_a_limiter_that_goes_leaves_nothing_in_the_loop(loop: str, redis_url: str, prefix: str) -> None:
    async def main() -> None:
        async def use() -> None:
            assert await limiter_of(redis_url, prefix).check(MUCH, "a")

        await use()
        before = files()
        for _ in range(50):
            await use()
        # Their threads close the connections.
        await until(lambda: files() <= before)

    run(main, loop)


@pytest.mark.parametrize("loop", READERS)
def test_a_limiter_that_goes_on_another_thread(loop: str, redis_url: str, prefix: str) -> None:
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


def test_a_loop_that_nobody_closed_is_collected_with_its_limiter(redis_url: str, prefix: str) -> None:
    def use() -> None:
        limiter = limiter_of(redis_url, prefix)
        loop = asyncio.SelectorEventLoop()
        assert loop.run_until_complete(limiter.check(MUCH, "a"))
        loop.limiter = limiter  # type: ignore[attr-defined]

    with warnings.catch_warnings():
        # Of the loops, which are not closed.
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
def test_who_was_answered_together_asks_together(loop: str, tasks: int, prefix: str) -> None:
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
    # One alone and the others after it would be two in each round.
    assert calls <= rounds * 1.5


def scripts(servers: Servers) -> int:
    stats: str = servers.command("INFO", "commandstats")
    line = next(line for line in stats.split() if line.startswith("cmdstat_evalsha:"))
    return int(line.split("calls=")[1].split(",")[0])


def test_a_task_that_stops_the_loop_does_not_keep_the_others(redis_url: str, prefix: str) -> None:
    """What was to leave together leaves when the loop goes on, and another loop does not wait for it."""
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
def test_nobodys_context_is_kept(loop: str, redis_url: str, prefix: str) -> None:
    class Request:
        """What a framework keeps in the context of whoever asks."""

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
