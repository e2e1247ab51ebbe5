"""Forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from tidegate import AsyncLimiter, Limiter, StoreError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(work: Callable[[], object]) -> None:
    """Runs the function in a forked child, and fails if it fails there."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def count(limiter: Limiter, checks: int) -> int:
    return sum(bool(limiter.check("api", "one")) for _ in range(checks))


async def count_async(limiter: AsyncLimiter, checks: int) -> int:
    return sum(map(bool, await asyncio.gather(*[limiter.check("api", "one") for _ in range(checks)])))


def test_a_limiter_made_before_a_fork_works_in_the_children(shared_store: str, prefix: str) -> None:
    policies = {"api": "fixed-window 100/hour", "hold": "concurrency 2"}
    limiter = Limiter(shared_store, policies=policies, prefix=prefix, timeout=60.0)
    awaitable = limiter.to_async()
    # The parent now has open connections and running threads.
    assert limiter.check("api", "one") and asyncio.run(count_async(awaitable, 9)) == 9
    with limiter.hold("hold", "one"):

        def child() -> None:
            assert count(limiter, 20) == 20
            assert asyncio.run(count_async(awaitable, 20)) == 20
            with limiter.hold("hold", "one"):
                assert not limiter.peek("hold", "one")
            assert limiter.acquire("api", "one", timeout=5.0)

        in_child(child)
        in_child(child)
        assert limiter.peek("hold", "one").remaining == 1
    assert limiter.peek("api", "one").remaining == 100 - 10 - 2 * 41
    assert count(limiter, 10) == 8
    assert asyncio.run(count_async(awaitable, 5)) == 0


FIRST_CALL = """
import os, signal, sys, threading, time
from tidegate import Limiter

limiter = Limiter(sys.argv[1], prefix=sys.argv[2], timeout=20.0)
caller = threading.Thread(target=limiter.check, args=("5/s", "a"))
caller.start()
time.sleep(float(sys.argv[3]))
child = os.fork()
if child == 0:
    signal.alarm(15)
    limiter.check("5/s", "b")
    os._exit(0)
caller.join()
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_child_of_a_fork_during_the_first_call_of_a_process_works(shared_store: str, prefix: str) -> None:
    # A fork at a bad moment copied a half-made global of the process, and the child waited for it.
    for tenths in range(3, 21):
        command = [sys.executable, "-c", FIRST_CALL, shared_store, prefix, str(tenths / 10_000)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (tenths, done.stderr)


def test_a_hold_of_the_parent_is_not_given_back_by_its_child(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"hold": "concurrency 1"}, prefix=prefix, timeout=60.0)
    hold = limiter.hold("hold", "one")
    in_child(hold.release)
    assert not limiter.peek("hold", "one")
    hold.release()
    assert limiter.peek("hold", "one")


def test_a_child_may_drop_what_its_parent_uses(shared_store: str, prefix: str) -> None:
    held: list[object] = []
    limiter = Limiter(shared_store, policies={"hold": "concurrency 2"}, prefix=prefix, timeout=60.0)
    held += [limiter, limiter.to_async(), limiter.hold("hold", "one")]
    asyncio.run(limiter.to_async().ping())

    def child() -> None:
        # The child must not join the parent's threads or close its connections.
        nonlocal limiter
        held.clear()
        del limiter
        gc.collect()

    in_child(child)
    assert limiter.peek("hold", "one").remaining == 1
    asyncio.run(limiter.to_async().ping())


def test_a_loop_made_before_a_fork_works_in_the_child(shared_store: str, prefix: str) -> None:
    limiter = AsyncLimiter(shared_store, policies={"api": "fixed-window 100/hour"}, prefix=prefix, timeout=60.0)
    assert asyncio.run(count_async(limiter, 5)) == 5
    in_child(lambda: asyncio.run(count_async(limiter, 5)))
    assert asyncio.run(count_async(limiter, 100)) == 90


_limiter: Limiter | None = None


def _count_here(checks: int) -> int:
    assert _limiter is not None
    return count(_limiter, checks)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_a_pool_share_one_limit(shared_store: str, prefix: str, method: str) -> None:
    global _limiter
    _limiter = Limiter(shared_store, policies={"api": "fixed-window 100/hour"}, prefix=prefix, timeout=60.0)
    _limiter.ping()
    context = multiprocessing.get_context(method)
    options = {} if method == "fork" else {"initializer": _make, "initargs": (shared_store, prefix)}
    with ProcessPoolExecutor(4, mp_context=context, **options) as pool:  # type: ignore[arg-type]
        assert sum(pool.map(_count_here, [40] * 4)) == 100


def _make(url: str, prefix: str) -> None:
    global _limiter
    _limiter = Limiter(url, policies={"api": "fixed-window 100/hour"}, prefix=prefix, timeout=60.0)


def test_forks_in_the_middle_of_calls_leave_an_exact_count(shared_store: str, prefix: str) -> None:
    most = 1_000_000_000
    limits = {"api": f"fixed-window {most}/hour", "other": f"fixed-window {most}/hour"}
    limiter = Limiter(shared_store, policies=limits, prefix=prefix, timeout=60.0)
    awaitable = limiter.to_async()
    ended = threading.Event()
    admitted: list[int] = []

    def check() -> int:
        # Takes one key alone, and then with a second key, which is in another part of the file.
        return count(limiter, 1) + bool(limiter.check_all([("api", "one"), ("other", "two")]))

    def on_thread() -> None:
        done = 0
        while not ended.is_set():
            done += check()
        admitted.append(done)

    async def on_loop() -> None:
        done = 0
        while not ended.is_set():
            done += await count_async(awaitable, 16)
        admitted.append(done)

    def child() -> None:
        # Ends a child that waits for a thread of its parent.
        signal.alarm(60)
        assert sum(check() for _ in range(10)) == 20
        assert asyncio.run(count_async(awaitable, 10)) == 10

    threads = [threading.Thread(target=on_thread) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(on_loop())))
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            in_child(child)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert len(admitted) == len(threads)
    assert limiter.peek("api", "one").remaining == most - sum(admitted) - 40 * 30


def script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "loop.close()", "del loop, tasks"])
def test_the_interpreter_ends_cleanly_with_calls_in_flight(shared_store: str, prefix: str, end: str) -> None:
    ended = script(
        f"""
        import asyncio, sys, warnings
        warnings.simplefilter("ignore")
        import logging
        logging.disable()
        from tidegate import AsyncLimiter, Limiter
        limiter = AsyncLimiter(sys.argv[1], prefix=sys.argv[2], timeout=30.0)
        hold = Limiter(sys.argv[1], prefix=sys.argv[2], timeout=30.0).hold("concurrency 5", "k")
        async def main():
            await limiter.ping()
            tasks = [asyncio.ensure_future(limiter.check("1000/s", "k")) for _ in range(1000)]
            tasks.append(asyncio.ensure_future(limiter.acquire("1/day", "k")))
            tasks.append(asyncio.ensure_future(limiter.hold("concurrency 5", "k")))
            await asyncio.sleep(0)
            return tasks
        loop = asyncio.new_event_loop()
        tasks = loop.run_until_complete(main())
        {end}
        """,
        shared_store,
        prefix,
    )
    assert ended.returncode == 0, ended.stderr
    for word in ("Fatal", "panicked", "Traceback", "Segmentation"):
        assert word not in ended.stderr, ended.stderr


def test_a_thread_that_checks_does_not_outlive_the_interpreter(shared_store: str, prefix: str) -> None:
    ended = script(
        """
        import sys, threading, time
        from tidegate import Limiter
        limiter = Limiter(sys.argv[1], prefix=sys.argv[2], timeout=30.0)
        def forever():
            while True:
                limiter.check("1000/s", "k")
        for _ in range(4):
            threading.Thread(target=forever, daemon=True).start()
        threading.Thread(target=limiter.acquire, args=("0/s", "k"), daemon=True).start()
        time.sleep(0.3)
        """,
        shared_store,
        prefix,
    )
    assert ended.returncode == 0, ended.stderr
    assert "panicked" not in ended.stderr and "Fatal" not in ended.stderr, ended.stderr


def test_an_unreachable_store_raises_in_a_child_too() -> None:
    limiter = Limiter("redis://127.0.0.1:1", on_store_error="raise")

    def child() -> None:
        with pytest.raises(StoreError):
            limiter.check("1/s", "k")

    in_child(child)
