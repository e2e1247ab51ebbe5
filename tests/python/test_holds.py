"""Holds that are lost: `lost`, the counter, and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from client import Servers
from tidegate import AsyncLimiter, Limiter, ManualClock

EXPORTS = "concurrency 2 ttl 30s"
# A third of the ttl: the time from one renewal to the next.
INTERVAL = 10.0


def soon(holds: Callable[[], bool]) -> None:
    """Waits for another thread. It takes long only if something is broken."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_hold_that_another_client_cleared_is_lost(
    redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(now=1_700_000_000.0)
    limiter = Limiter(redis_url, prefix=prefix, timeout=20.0, clock=clock)
    with limiter.hold(EXPORTS, "a") as hold, limiter.hold(EXPORTS, "b") as kept:
        clock.advance(INTERVAL)
        assert not hold.lost and not kept.lost
        Limiter(redis_url, prefix=prefix, timeout=20.0, clock=clock).clear(EXPORTS, "a")
        clock.advance(INTERVAL)
        assert hold.lost and not kept.lost
    assert hold.released and hold.lost and not kept.lost
    assert limiter.counters()["holds_lost"] == 1
    soon(lambda: "is lost" in caplog.text)
    assert "concurrency 2 ttl 30 s" in caplog.text


def test_a_hold_is_lost_when_its_server_is_killed(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(now=1_700_000_000.0)
    with Servers("single") as servers:
        limiter = Limiter(servers.url, prefix=prefix, timeout=5.0, clock=clock)
        hold = limiter.hold(EXPORTS, "a")
        servers.kill(0)
        for failed in (1, 2):
            clock.advance(INTERVAL)
            assert (hold.lost, limiter.counters()["hold_renewals_failed"]) == (False, failed)
        clock.advance(INTERVAL)
        assert hold.lost and limiter.counters()["holds_lost"] == 1
        hold.release()
        assert hold.lost
    soon(lambda: "is lost" in caplog.text and "was not renewed" in caplog.text)
    assert caplog.text.count("was not renewed: ") == 1


def test_an_async_hold_says_the_same(redis_url: str, prefix: str) -> None:
    async def main() -> None:
        clock = ManualClock(now=1_700_000_000.0)
        async with AsyncLimiter(redis_url, prefix=prefix, timeout=20.0, clock=clock) as limiter:
            async with limiter.hold(EXPORTS, "a") as hold:
                clock.advance(INTERVAL)
                assert not hold.lost
                await limiter.clear(EXPORTS, "a")
                clock.advance(INTERVAL)
                assert hold.lost
            assert hold.lost and limiter.counters()["holds_lost"] == 1

    asyncio.run(main())


def test_a_hold_in_memory_is_lost_when_its_process_was_suspended_for_its_ttl() -> None:
    clock = ManualClock(now=1_700_000_000.0)
    limiter = Limiter(clock=clock)
    with limiter.hold(EXPORTS, "a") as hold:
        for _ in range(9):
            clock.advance(INTERVAL)
        assert not hold.lost
        clock.advance(3 * INTERVAL)
        assert hold.lost
