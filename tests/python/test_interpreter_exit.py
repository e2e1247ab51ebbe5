"""Daemon threads that use a limiter while the interpreter ends. Before Python 3.14 it unwinds their stacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

EVENT_LOOP = """
import asyncio, sys, threading, time
from tidegate import AsyncLimiter

begun = threading.Event()

async def one(limiter, key):
    while True:
        await limiter.check("1000000/s", key)
        begun.set()
        # The interpreter ends meanwhile, in code of users.
        time.sleep(0.001)

async def main():
    limiter = AsyncLimiter(sys.argv[1])
    await asyncio.gather(*(one(limiter, str(number)) for number in range(8)))

threading.Thread(target=lambda: asyncio.run(main(), debug=DEBUG), daemon=True).start()
assert begun.wait(60)
time.sleep(0.05)
"""

STOPPED_AT_EXIT = """
import asyncio, atexit, sys, threading

loop = asyncio.new_event_loop()
thread = threading.Thread(target=loop.run_forever, daemon=True)

async def work(limiter):
    # More calls than one wait, so that one after the other would be noticed.
    for _ in range(100):
        await limiter.check("1000000/s", "a")

def stop():
    # Runs after the exit function of tidegate, which was registered later.
    asyncio.run_coroutine_threadsafe(work(limiter), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    print("stopped")

atexit.register(stop)
from tidegate import AsyncLimiter
limiter = AsyncLimiter(sys.argv[1])
thread.start()
asyncio.run_coroutine_threadsafe(work(limiter), loop).result(60)
"""


def run(program: str, url: str) -> subprocess.CompletedProcess[str]:
    # Without this option asyncio warns of tasks that are pending at exit.
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", program, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_a_process_ends_while_a_daemon_thread_runs_an_event_loop(redis_url: str, number: int, debug: bool) -> None:
    ended = run(EVENT_LOOP.replace("DEBUG", str(debug)), redis_url)
    assert ended.returncode == 0, ended.stderr


def test_what_runs_at_exit_may_wait_for_a_daemon_thread_that_uses_a_limiter(redis_url: str) -> None:
    ended = run(STOPPED_AT_EXIT, redis_url)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n"), ended.stderr
