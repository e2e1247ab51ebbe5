"""Checks per second of Tidegate and of its peers in Python, measured alternately in one run.

    python benches/python/peers.py [--seconds 1.0] [--rounds 3] [--only memory,sync,…]

Needs: pip install limits throttled-py redis hiredis, and tidegate built for release. In a case of "one core" client and
server share a core; else each has its own. Only the ratios are reliable.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "servers")]

import limits
import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import redis
import redis.asyncio
import throttled
import throttled.asyncio

import tidegate
from client import Servers

KEYS = [f"user-{number}" for number in range(100)]
HIGH_LIMIT = 1_000_000_000
# What one would write by hand: one counter with its expiry, and the values that a caller needs.
SCRIPT = """
local used = redis.call('INCRBY', KEYS[1], ARGV[2])
if used == tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {used <= tonumber(ARGV[1]) and 1 or 0, used, redis.call('PTTL', KEYS[1])}
"""

Check = Callable[[str], Any]


@dataclass
class Case:
    """Contenders of one kind, and how many times faster than each other one the first has to be."""

    name: str
    goals: dict[str, float]
    contenders: dict[str, Callable[[], Check] | Callable[[], Awaitable[Check]]]
    threads: int = 1
    tasks: int = 0
    one_core: bool = False


def cases(url: str) -> list[Case]:
    quota = throttled.rate_limiter.per_hour(HIGH_LIMIT, burst=HIGH_LIMIT)
    item = limits.parse(f"{HIGH_LIMIT}/hour")
    fixed, gcra = f"fixed-window {HIGH_LIMIT}/hour", f"gcra {HIGH_LIMIT}/hour"

    def ours(store: str, policy: str) -> Callable[[], Check]:
        def make() -> Check:
            limiter = tidegate.Limiter(store, policies={"api": policy}, timeout=5.0)
            return partial(limiter.check, "api")

        return make

    def with_limits(store: str) -> Callable[[], Check]:
        def make() -> Check:
            limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.storage_from_string(store))
            return partial(limiter.hit, item)

        return make

    def with_throttled(using: str, store: Callable[[], Any]) -> Callable[[], Check]:
        def make() -> Check:
            limiter = throttled.Throttled(using=using, quota=quota, store=store())
            return cast(Check, limiter.limit)

        return make

    def redis_py() -> Check:
        client = redis.Redis.from_url(url)
        sha = client.script_load(SCRIPT)
        return lambda key: client.evalsha(sha, 1, "bare:" + key, HIGH_LIMIT, 1, 3_600_000)

    async def ours_async() -> Check:
        limiter = tidegate.AsyncLimiter(url, policies={"api": fixed}, timeout=5.0)
        return partial(limiter.check, "api")

    async def limits_async() -> Check:
        storage = limits.aio.storage.RedisStorage("async+" + url, implementation="redispy")
        limiter = limits.aio.strategies.FixedWindowRateLimiter(storage)
        return partial(limiter.hit, item)

    async def throttled_async() -> Check:
        store = throttled.asyncio.RedisStore(server=url)
        limiter = throttled.asyncio.Throttled(using="fixed_window", quota=quota, store=store)
        return cast(Check, limiter.limit)

    async def redis_py_async() -> Check:
        client = redis.asyncio.Redis.from_url(url)
        sha = await client.script_load(SCRIPT)
        return lambda key: client.evalsha(sha, 1, "bare:" + key, HIGH_LIMIT, 1, 3_600_000)

    blocking: dict[str, Any] = {
        "tidegate": ours(url, fixed),
        "limits": with_limits(url),
        "throttled-py": with_throttled("fixed_window", lambda: throttled.RedisStore(server=url)),
        "redis-py evalsha": redis_py,
    }
    tasks: dict[str, Any] = {
        "tidegate": ours_async,
        "limits.aio": limits_async,
        "throttled-py asyncio": throttled_async,
        "redis-py asyncio evalsha": redis_py_async,
    }

    def in_flight(count: int, times: float, bare: float, one_core: bool = False) -> Case:
        goals = {"limits.aio": times, "throttled-py asyncio": times, "redis-py asyncio evalsha": bare}
        cores = ", one core" if one_core else ""
        return Case(f"asyncio, Redis, {count} in flight{cores}", goals, tasks, tasks=count, one_core=one_core)

    return [
        Case(
            "memory, fixed window",
            {"limits": 8},
            {"tidegate": ours("memory://", fixed), "limits": with_limits("memory://")},
        ),
        Case(
            "memory, gcra",
            {"throttled-py": 8},
            {
                "tidegate": ours("memory://", gcra),
                "throttled-py": with_throttled("gcra", lambda: throttled.MemoryStore()),
            },
        ),
        Case(
            "sync, Redis, 1 thread, one core",
            {"limits": 2.5, "throttled-py": 2.5, "redis-py evalsha": 2},
            blocking,
            one_core=True,
        ),
        Case("sync, Redis, 8 threads", {"limits": 3, "throttled-py": 3}, blocking, threads=8),
        in_flight(256, 10, 9),
        in_flight(64, 10, 9),
        in_flight(16, 5, 5),
        in_flight(1, 2, 2, one_core=True),
    ]


def pin(server: int, one_core: bool) -> None:
    """Pins client and server to one core each, or both to one."""
    cores = sorted(os.sched_getaffinity(os.getppid()))[:2]
    client_core, server_core = {cores[0]}, {cores[0 if one_core else -1]}
    for process, core in ((os.getpid(), client_core), (server, server_core)):
        # Each thread has its own affinity. Threads that are started later inherit it.
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setaffinity(int(thread), core)


def with_threads(check: Check, threads: int, seconds: float) -> float:
    counts, stop = [0] * threads, threading.Event()

    def work(number: int) -> None:
        count, stopped = 0, stop.is_set
        while not stopped():
            for key in KEYS[:20]:
                check(key)
            count += 20
        counts[number] = count

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


def alone(check: Check, seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for key in KEYS:
            check(key)
        count += len(KEYS)
    return count / passed


async def with_tasks(make: Callable[[], Awaitable[Check]], tasks: int, seconds: float) -> float:
    check = await make()
    await check(KEYS[0])
    count, end = 0, time.perf_counter() + seconds

    async def work(number: int) -> None:
        nonlocal count
        keys = KEYS[number:] + KEYS[:number]
        while time.perf_counter() < end:
            for key in keys[:10]:
                await check(key)
            count += 10

    began = time.perf_counter()
    await asyncio.gather(*[work(number) for number in range(tasks)])
    return count / (time.perf_counter() - began)


def measure(case: Case, make: Any, seconds: float) -> float:
    if case.tasks:
        return asyncio.run(with_tasks(make, case.tasks, seconds))
    check = make()
    check(KEYS[0])
    return with_threads(check, case.threads, seconds) if case.threads > 1 else alone(check, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="each contender, each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has one of these words, separated by commas")
    options = parser.parse_args()
    missed = 0
    with Servers("single") as servers:
        server = int(servers.servers[0]["pid"])
        for case in cases(servers.url):
            if not any(word in case.name for word in options.only.split(",")):
                continue
            pin(server, case.one_core)
            rates: dict[str, list[float]] = {name: [] for name in case.contenders}
            for _ in range(options.rounds):
                for name, make in case.contenders.items():
                    rates[name].append(measure(case, make, options.seconds))
            print(f"\n{case.name}")
            for name, found in rates.items():
                rate = statistics.median(found)
                line = f"  {name:<26} {rate:>11,.0f} /s   {1e6 / rate:>8.2f} µs"
                if name in case.goals:
                    # The pairs of one round ran under the same load.
                    times = statistics.median(a / b for a, b in zip(rates["tidegate"], found, strict=True))
                    reached = times >= case.goals[name]
                    missed += not reached
                    line += f"   {times:>6.1f} x   goal {case.goals[name]:>4} x{'' if reached else '   MISSED'}"
                print(line, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
