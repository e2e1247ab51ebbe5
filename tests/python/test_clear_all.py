"""`clear_all`: a limiter as if it had never been used, and no other limiter."""

from __future__ import annotations

import asyncio

import pytest

from tidegate import AsyncLimiter, ClosedError, Limiter, Policy

POLICIES = {"window": "fixed-window 2/hour", "journal": Policy("9/hour", journal=3)}


def test_everything_of_the_prefix_is_forgotten(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies=POLICIES, prefix=prefix, timeout=5.0)
    other = Limiter(store, policies=POLICIES, prefix=f"{prefix}x", timeout=5.0)
    assert other.check("window", "alice", cost=2)
    assert limiter.check("window", "alice", cost=2)
    assert not limiter.check("window", "alice")
    assert limiter.check("journal", "alice", meta="who")
    assert limiter.clear_all() is None
    answer = limiter.check("window", "alice")
    assert (answer.allowed, answer.remaining, answer.source) == (True, 1, "store")
    assert limiter.journal("journal", "alice") == []
    assert not other.peek("window", "alice")
    limiter.close()
    with pytest.raises(ClosedError):
        limiter.clear_all()


def test_awaited(redis_url: str, prefix: str) -> None:
    async def main(url: str) -> None:
        limiter = AsyncLimiter(url, policies=POLICIES, prefix=prefix, timeout=5.0)
        assert all([await limiter.check("window", f"key {number}", cost=2) for number in range(50)])
        assert not await limiter.check("window", "key 0")
        assert await limiter.clear_all() is None
        assert all([await limiter.check("window", f"key {number}", cost=2) for number in range(50)])
        await limiter.close()

    asyncio.run(main(redis_url))
