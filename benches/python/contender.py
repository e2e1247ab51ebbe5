"""The contenders of `make bench` that are written in Python: one process is one round of one of them.

Its arguments are `name=value`. It prints one line of JSON. `value` is the figure of the round. `decisions` is the
number of decisions from start to end, so that the caller can divide the CPU time of the server by it. `beside` has
further figures by name.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import module_of
from traffic import calls_of, limits_of

Arguments = dict[str, str]
# The checks between two looks at the clock, so that the clock costs next to nothing.
CHUNK = 16


def keys_of(arguments: Arguments, first: int = 0) -> Iterator[str]:
    count = int(arguments["keys"])
    if count == 1:
        # A key that no other round has used. Only the key for denials is the same, so that it stays denied.
        return itertools.repeat("hot" if arguments["kind"] == "denied" else f"hot:{os.getpid()}")
    keys = [f"user:{number:07}" for number in range(count)]
    return itertools.cycle(keys[first:] + keys[:first])


def sync_checks(check: Any, arguments: Arguments, seconds: float, most: float) -> int:
    """Checks on one thread until the time has passed or `most` are made, and returns their number."""
    keys, done = keys_of(arguments), 0
    chunk = 1 if arguments["chunk"] == "1" else CHUNK
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and done < most:
        for key in itertools.islice(keys, chunk):
            check(key)
        done += chunk
    return done


def thread_checks(check: Any, arguments: Arguments, seconds: float, most: float) -> int:
    threads = int(arguments["threads"])
    if threads == 1:
        return sync_checks(check, arguments, seconds, most)
    counts = [0] * threads

    def work(number: int) -> None:
        counts[number] = sync_checks(check, arguments, seconds, most)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts)


async def task_checks(check: Any, arguments: Arguments, seconds: float, most: float) -> int:
    """Checks in several tasks, each of them one at a time, and returns their number."""
    end, done = time.perf_counter() + seconds, 0

    async def work(number: int) -> None:
        nonlocal done
        keys = keys_of(arguments, number)
        while time.perf_counter() < end and done < most:
            for key in itertools.islice(keys, CHUNK):
                await check(key)
            done += CHUNK

    await asyncio.gather(*[work(number) for number in range(int(arguments["tasks"]))])
    return done


class Span:
    """The figures of the measured part of a round, which follows the warm-up."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def result(self, warm: int, done: int) -> dict[str, Any]:
        took, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        return {"value": done / took, "decisions": warm + done, "beside": {"client CPU, µs": cpu * 1e6 / done}}


def most_of(arguments: Arguments) -> tuple[float, float]:
    """The most checks of the warm-up and of the measured part."""
    most = float(arguments.get("most", "inf"))
    return most / 4, most * 3 / 4


def sync_rate(arguments: Arguments) -> dict[str, Any]:
    check = module_of(arguments["contender"]).check(arguments["url"], arguments["kind"])
    check("first")
    few, most = most_of(arguments)
    warm = thread_checks(check, arguments, float(arguments["warm"]), few)
    span = Span()
    return span.result(warm, thread_checks(check, arguments, float(arguments["seconds"]), most))


async def async_rate(arguments: Arguments) -> dict[str, Any]:
    check = await module_of(arguments["contender"]).async_check(arguments["url"], arguments["kind"])
    await check("first")
    few, most = most_of(arguments)
    warm = await task_checks(check, arguments, float(arguments["warm"]), few)
    span = Span()
    return span.result(warm, await task_checks(check, arguments, float(arguments["seconds"]), most))


async def traffic_rate(arguments: Arguments) -> dict[str, Any]:
    """The checks of tasks that share keys and policies: see traffic.py."""
    policies, tasks = int(arguments["policies"]), int(arguments["tasks"])
    limits = limits_of(arguments["algorithms"], policies)
    checks = await module_of(arguments["contender"]).async_checks(arguments["url"], limits)
    for check in checks:
        await check("first")
    shape = (tasks, arguments["spread"], int(arguments["keys"]), policies)
    callers = [calls_of(number, *shape) for number in range(tasks)]

    async def run(seconds: float) -> int:
        end, done = time.perf_counter() + seconds, 0

        async def work(calls: Iterator[tuple[int, str]]) -> None:
            nonlocal done
            while time.perf_counter() < end:
                for policy, key in itertools.islice(calls, CHUNK):
                    await checks[policy](key)
                done += CHUNK

        await asyncio.gather(*[work(calls) for calls in callers])
        return done

    warm = await run(float(arguments["warm"]))
    span = Span()
    return span.result(warm, await run(float(arguments["seconds"])))


def key_bytes(arguments: Arguments) -> dict[str, Any]:
    """The bytes of the server's keys (MEMORY USAGE) after some checks of one key."""
    import redis

    client = redis.Redis.from_url(arguments["url"])
    client.flushall()
    check = module_of(arguments["contender"]).check(arguments["url"], arguments["kind"])
    checks = int(arguments["checks"])
    for _ in range(checks):
        check("user:1234567")
        if checks > 10:
            time.sleep(0.001)
    return {"value": sum(client.memory_usage(key, samples=0) or 0 for key in client.keys("*")), "decisions": checks}


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_bytes(arguments: Arguments) -> dict[str, Any]:
    """The growth of this process for each key, in bytes."""
    check = module_of(arguments["contender"]).check("memory://", arguments["kind"])
    first, count = 100, int(arguments["keys"])
    for number in range(first):
        check(f"user:{number:011}")
    before = resident_bytes()
    for number in range(first, count):
        check(f"user:{number:011}")
    return {"value": (resident_bytes() - before) / (count - first), "decisions": count}


def main() -> None:
    arguments: Arguments = {"threads": "1", "chunk": str(CHUNK)}
    arguments |= dict(argument.split("=", 1) for argument in sys.argv[1:])
    mode = arguments["mode"]
    if mode in ("async", "traffic"):
        result = asyncio.run({"async": async_rate, "traffic": traffic_rate}[mode](arguments))
    else:
        result = {"sync": sync_rate, "key-bytes": key_bytes, "memory-bytes": memory_bytes}[mode](arguments)
    print(json.dumps(result), flush=True)
    # The background threads of a peer must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
