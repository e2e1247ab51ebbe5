"""Memory does not grow with the number of checks."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tidegate import AsyncLimiter, Limiter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_million_checks_need_no_more_memory() -> None:
    limiter = Limiter(policies={"api": "gcra 100/s"})
    keys = [f"k{number}" for number in range(1_000)]

    def checks(count: int) -> None:
        check = limiter.check
        for _ in range(count // len(keys)):
            for key in keys:
                check("api", key).remaining  # noqa: B018

    checks(50_000)
    before = resident()
    checks(1_000_000)
    assert resident() - before < 8 << 20


@pytest.mark.parametrize("kind", ["answered", "cancelled"])
def test_awaited_checks_need_no_more_memory(redis_url: str, prefix: str, kind: str) -> None:
    async def main() -> int:
        limiter = AsyncLimiter(redis_url, policies={"api": "gcra 100/s"}, prefix=prefix, timeout=60.0)

        async def checks(count: int) -> None:
            for _ in range(count // 500):
                tasks = [asyncio.ensure_future(limiter.check("api", f"k{number}")) for number in range(500)]
                if kind == "cancelled":
                    await asyncio.sleep(0)
                    for task in tasks[::2]:
                        task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        await checks(100_000)
        before = resident()
        await checks(1_000_000 if kind == "answered" else 200_000)
        return resident() - before

    assert asyncio.run(main()) < 8 << 20
