"""One process that takes units until a check is denied, and prints their number."""

import asyncio
import sys

from tidegate import AsyncLimiter


async def main(store: str, policy: str) -> None:
    limiter = AsyncLimiter(store, policies={"shared": policy}, timeout=20)
    await limiter.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    taken = 0
    while True:
        decisions = await asyncio.gather(*(limiter.check("shared", "all") for _ in range(16)))
        taken += sum(decision.allowed for decision in decisions)
        if not all(decision.allowed for decision in decisions):
            break
    print(taken, flush=True)


asyncio.run(main(*sys.argv[1:]))
