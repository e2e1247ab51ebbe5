"""Leases in Python: the option, the source, the counters."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from tidegate import AsyncLimiter, Limiter, Policy, PolicyError

HOT = Policy("fixed-window 1000000/hour", lease="5%", name="hot")


def test_the_option() -> None:
    assert (HOT.lease, Policy("5/s", lease=3).lease, Policy("5/s").lease) == ("5%", 3, None)
    for policy in (HOT, Policy("5/s", lease=3)):
        assert copy.copy(policy) == policy == pickle.loads(pickle.dumps(policy))
        assert "lease=" in repr(policy) and eval(repr(policy), {"Policy": Policy}) == policy
    assert Policy("50/s", lease="5%") != Policy("50/s")
    for wrong in ("", "5 percent", "0%", "101%", 0, -1, 1.5, True, 10**13):
        with pytest.raises((PolicyError, TypeError), match="lease"):
            Policy("5/s", lease=wrong)  # type: ignore[arg-type]
    for limits, options in [
        ("concurrency 5", {}),
        ("leaky-bucket 5/s", {}),
        ("5/s", {"journal": 3}),
        ("5/s", {"count_denied": True}),
    ]:
        with pytest.raises(PolicyError, match="cannot lease"):
            Policy(limits, lease="5%", **options)  # type: ignore[arg-type]
    assert "never leases" in Policy("10/s", lease="5%").lint()[0].message


def test_a_file_says_it(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.yaml"
    path.write_text("policies:\n  hot: {limits: fixed-window 100000/s, lease: 5%}\n  some: {limits: 100/s, lease: 7}\n")
    with Limiter.from_file(path) as limiter:
        assert (limiter.policy("hot").lease, limiter.policy("some").lease) == ("5%", 7)
    path.write_text("policies:\n  hot: {limits: 5/s, lease: much}\n")
    with pytest.raises(PolicyError, match=r"tidegate.yaml:2:\d+: .*lease"):
        Limiter.from_file(path)


def test_a_hot_key_needs_few_calls(redis_url: str, prefix: str) -> None:
    with Limiter(redis_url, prefix=prefix, timeout=5.0) as limiter:
        sources = [limiter.check(HOT, "k").source for _ in range(20_000)]
        counters = limiter.counters()
        assert sources.count("lease") == counters["lease"] > 15_000
        assert counters["asked"] < 5_000
        decision = limiter.check(HOT, "k")
        assert decision and decision.source == "lease" and decision.granted == 1
        limiter.settle(decision, 0)
        # A process notices its own block at once, in spite of its lease.
        limiter.block(HOT, "k", 60)
        assert not limiter.check(HOT, "k")
        limiter.unblock(HOT, "k")
        limiter.clear(HOT, "k")
        assert limiter.check(HOT, "k")
    # The rest of the lease goes back, also that of a request that was under way during the clear.
    with Limiter(redis_url, prefix=prefix, timeout=5.0) as limiter:
        deadline = time.monotonic() + 20
        while (left := limiter.peek(HOT, "k").remaining) != 999_999:
            assert time.monotonic() < deadline, left
            time.sleep(0.005)


def test_a_key_that_is_asked_now_and_then_never_leases(redis_url: str, prefix: str) -> None:
    with Limiter(redis_url, prefix=prefix, timeout=5.0) as limiter:
        decisions = [limiter.check(HOT, f"k{number}") for number in range(500)]
        assert {decision.source for decision in decisions} == {"store"}
        assert limiter.counters()["asked"] == 500


def test_awaited(redis_url: str, prefix: str) -> None:
    async def main() -> tuple[Any, int]:
        limiter = AsyncLimiter(redis_url, prefix=prefix, timeout=5.0)
        for _ in range(300):
            await asyncio.gather(*(limiter.check(HOT, "k") for _ in range(64)))
        counters = limiter.counters()
        await limiter.close()
        other = AsyncLimiter(redis_url, prefix=prefix, timeout=5.0)
        left = (await other.peek(HOT, "k")).remaining
        await other.close()
        return counters, left

    counters, left = asyncio.run(main())
    assert counters["lease"] > 10_000
    assert left == 1_000_000 - 300 * 64, "each unit was charged once, and what was left went back"
