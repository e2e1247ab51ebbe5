"""Stores in Python: failures, the deny cache, shards, rollouts, counters and logging."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from client import Servers
from tidegate import AsyncLimiter, ConfigError, Limiter, Policy, StoreError, rollout

UNREACHABLE = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("choice", "answers"),
    [("open", [True, True, True]), ("closed", [False, False, False]), ("local", [True, True, False])],
)
def test_on_store_error_decides_when_the_store_is_unreachable(choice: str, answers: list[bool]) -> None:
    limiter = Limiter(UNREACHABLE, policies={"api": "2/hour"}, on_store_error=choice)
    decisions = [limiter.check("api", "a") for _ in range(3)]
    assert [bool(one) for one in decisions] == answers
    assert {one.source for one in decisions} == {"fallback"}

    async def main() -> list[bool]:
        awaitable = AsyncLimiter(UNREACHABLE, policies={"api": "2/hour"}, on_store_error=choice)
        return [bool(await awaitable.check("api", "a")) for _ in range(3)]

    assert asyncio.run(main()) == answers


def test_a_policy_overrides_the_limiters_choice() -> None:
    policies = {"api": Policy("2/hour", on_store_error="raise"), "other": "2/hour"}
    limiter = Limiter(UNREACHABLE, policies=policies, on_store_error="open")
    assert limiter.check("other", "a")
    with pytest.raises(StoreError) as caught:
        limiter.check("api", "a")
    assert caught.value.code == "store_unavailable"


def test_a_denial_is_repeated_without_the_store(redis_url: str, prefix: str) -> None:
    for seconds, source in ((60, "deny-cache"), (0, "store")):
        limiter = Limiter(
            redis_url, policies={"api": "1/hour"}, prefix=f"{prefix}{seconds}", deny_cache=seconds, timeout=10.0
        )
        assert limiter.check("api", "a")
        limiter.check("api", "a")
        denied = limiter.check("api", "a")
        assert not denied and denied.source == source
        if source == "deny-cache":
            assert f"source='{source}'" in repr(denied)


def test_counters_count_events(redis_url: str, prefix: str) -> None:
    with Limiter(redis_url, policies={"api": "1/hour"}, prefix=prefix, timeout=10.0) as limiter:
        for _ in range(4):
            limiter.check("api", "a")
        counted = limiter.counters()
        assert (counted["asked"], counted["deny_cache"], counted["lost"]) == (2, 2, 0)

    async def lose() -> dict[str, int]:
        async with AsyncLimiter(UNREACHABLE, policies={"api": "1/hour"}, on_store_error="open") as gone:
            for _ in range(5):
                assert await gone.check("api", "a")
            return gone.counters()

    counted = asyncio.run(lose())
    assert (counted["fallback_open"], counted["lost"], counted["store_unavailable"]) == (5, 1, 3)
    assert counted["withheld"] == 2


def test_several_stores_share_the_keys(prefix: str) -> None:
    with Servers("single") as one, Servers("single") as two:
        limiter = Limiter([one.url, two.url], policies={"api": "1/hour"}, prefix=prefix, timeout=5.0)
        assert all(limiter.check("api", f"k{number}") for number in range(50))
        sizes = [int(servers.command("DBSIZE")) for servers in (one, two)]
        assert sum(sizes) == 50 and all(sizes)


def test_a_rollout_moves_a_share(prefix: str) -> None:
    with Servers("single") as old, Servers("single") as new:
        limiter = Limiter(rollout(old.url, new.url, 0), policies={"api": "1/hour"}, prefix=prefix, timeout=5.0)
        assert all(limiter.check("api", f"k{number}") for number in range(20))
        assert (old.command("DBSIZE"), new.command("DBSIZE")) == (20, 0)
        limiter.set_rollout(100)
        assert all(limiter.check("api", f"k{number}") for number in range(20))
        assert (old.command("DBSIZE"), new.command("DBSIZE")) == (20, 20)
        limiter.set_rollout(0)
        assert not limiter.check("api", "k0")
        with pytest.raises(ConfigError):
            limiter.set_rollout(101)
    assert ":" not in repr(rollout("redis://:secret@a", "redis://:secret@b", 5))
    with pytest.raises(ConfigError):
        Limiter().set_rollout(5)


def test_a_lost_store_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture, prefix: str) -> None:
    caplog.set_level(logging.INFO, logger="tidegate")

    with Servers("single") as servers:
        # A thread writes the log, so lines of an earlier test may arrive here.
        address = servers.url.removeprefix("redis://").removesuffix("/0")

        def logged(level: int) -> int:
            return sum(record.levelno == level and address in record.getMessage() for record in caplog.records)

        limiter = Limiter(servers.url, policies={"api": "1000/s"}, prefix=prefix, timeout=5.0)
        limiter.ping()
        servers.kill()
        end = time.monotonic() + 30
        while not logged(logging.WARNING) and time.monotonic() < end:
            limiter.check("api", "a")
        servers.start()
        while not logged(logging.INFO) and time.monotonic() < end:
            limiter.check("api", "a")
            time.sleep(0.01)
    assert (logged(logging.WARNING), logged(logging.INFO)) == (1, 1)
    assert all(record.name == "tidegate" for record in caplog.records if address in record.getMessage())
