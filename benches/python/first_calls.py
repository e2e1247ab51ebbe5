"""Processes that start together: each connects to one Redis without loaded scripts, and makes its first call.

    python first_calls.py contender=tidegate url=redis://… callers=50 waves=4

The figure is the 99th percentile of the times of all processes, in ms, over all waves. Meanwhile another client sends
PING in a loop. Its longest wait, as the median of the waves, is printed beside the figure. If the system permits it,
that client has priority over the others, so that it waits for the server and not for a core.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

Arguments = dict[str, str]
PING = b"*1\r\n$4\r\nPING\r\n"


def connection(url: str) -> socket.socket:
    address = urlsplit(url)
    connected = socket.socket()
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.connect((address.hostname, address.port or 6379))
    return connected


def command(connected: socket.socket, *words: str) -> bytes:
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    connected.sendall("".join(parts).encode())
    return connected.recv(4096)


def tidegate_call(url: str) -> Callable[[], Any]:
    from tidegate import Limiter

    limiter = Limiter(url, timeout=30, on_store_error="raise")
    return lambda: limiter.check("1000000/hour", "alice")


def limits_call(url: str) -> Callable[[], Any]:
    from limits import RateLimitItemPerHour
    from limits.storage import RedisStorage
    from limits.strategies import SlidingWindowCounterRateLimiter

    limiter, item = SlidingWindowCounterRateLimiter(RedisStorage(url)), RateLimitItemPerHour(1_000_000)
    return lambda: limiter.hit(item, "alice")


def ping_call(url: str) -> Callable[[], Any]:
    return lambda: command(connection(url), "PING")


CALLS = {"tidegate": tidegate_call, "limits": limits_call, "PING": ping_call}


def child(arguments: Arguments) -> None:
    """One process: it prints that it is ready, waits for the given moment, and prints the time of its call. It stays
    until all have called."""
    call = CALLS[arguments["contender"]](arguments["url"])
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    time.sleep(max(0, begin - time.monotonic()))
    began, cpu = time.perf_counter(), time.process_time()
    called = call()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert called, called
    print(took * 1_000, cpu * 1_000, flush=True)
    # A process that ends now takes milliseconds of a core from those that have not called yet.
    sys.stdin.read()


def pings(arguments: Arguments) -> None:
    """The other client: when its input ends, it prints the longest time that it waited."""
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with connection(arguments["url"]) as connected:
        for _ in range(100):
            command(connected, "PING")
        print("ready", flush=True)
        longest = 0.0
        while not ended.is_set():
            began = time.perf_counter()
            connected.sendall(PING)
            connected.recv(64)
            longest = max(longest, time.perf_counter() - began)
    print(longest * 1_000, flush=True)


def started(arguments: Arguments, part: str) -> subprocess.Popen[str]:
    given = [f"{name}={value}" for name, value in {**arguments, "part": part}.items()]
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, __file__, *given], stdin=pipe, stdout=pipe, text=True)


def wave(arguments: Arguments) -> tuple[list[list[float]], float]:
    """Returns the time and the CPU time of each process's first call, and the longest wait of the other client."""
    with connection(arguments["url"]) as connected:
        command(connected, "SCRIPT", "FLUSH")
    processes = [started(arguments, "child") for _ in range(int(arguments["callers"]))]
    other = started(arguments, "pings")
    try:
        for process in [*processes, other]:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        begin = time.monotonic() + 0.2
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{begin}\n")
            process.stdin.flush()
        took = [[float(one) for one in process.stdout.readline().split()] for process in processes if process.stdout]
        longest = float(other.communicate()[0])
        return took, longest
    finally:
        for process in [*processes, other]:
            process.kill()
            process.wait()


def main() -> None:
    arguments = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if part := arguments.get("part"):
        {"child": child, "pings": pings}[part](arguments)
        return
    waves = [wave(arguments) for _ in range(int(arguments["waves"]))]
    took = sorted(one for each, _ in waves for one, _ in each)
    beside = {
        "median, ms": statistics.median(took),
        "CPU of a process, ms": statistics.median(cpu for each, _ in waves for _, cpu in each),
        "longest PING of another client, ms": statistics.median(longest for _, longest in waves),
    }
    value = took[math.ceil(len(took) * 0.99) - 1]
    print(json.dumps({"value": value, "decisions": len(took), "beside": beside}))


if __name__ == "__main__":
    main()
