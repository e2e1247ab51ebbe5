"""Prints the checks per second of one build of the Python package, for pairs.py."""

from __future__ import annotations

import asyncio
import sys
import time

import tidegate

SECONDS = 0.5
KEYS = [f"user:{number:05}" for number in range(10_000)]
POLICY = "gcra 1000000000/s"
# A key of the first policy is unused again before its next check. A key of this one keeps its usage.
KEPT = "gcra 1/s burst 1000000000"


def blocking(url: str, policy: str = POLICY) -> float:
    with_limiter = tidegate.Limiter(url, timeout=5.0)
    check = with_limiter.check
    for key in KEYS[:500]:
        check(policy, key)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        for _ in range(64):
            check(policy, KEYS[done % 10_000])
            done += 1
    return done / (time.perf_counter() - began)


async def awaited(url: str, flight: int) -> float:
    limiter = tidegate.AsyncLimiter(url, timeout=5.0)
    done = 0

    async def call(until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            for _ in range(16):
                done += 1
                await limiter.check(POLICY, KEYS[done % 10_000])

    await asyncio.gather(*(call(time.perf_counter() + 0.1) for _ in range(flight)))
    done, began = 0, time.perf_counter()
    await asyncio.gather(*(call(began + SECONDS) for _ in range(flight)))
    return done / (time.perf_counter() - began)


def main() -> None:
    url, kind, *rest = sys.argv[1:]
    if kind == "asyncio":
        print(asyncio.run(awaited(url, int(rest[0]))))
    else:
        store = "memory://" if kind.startswith("memory") else url
        print(blocking(store, KEPT if kind == "memory-kept" else POLICY))


main()
