"""The contents of `limiter.stats()`, and the calls of `on_change` and `on_near_limit`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from client import Servers
from tidegate import AsyncLimiter, Limiter, ManualClock, NearLimit, StoreChange
from tidegate.errors import ConfigError


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_the_shape_that_is_documented() -> None:
    limiter = Limiter(policies={"login": "fixed-window 5/minute"}, clock=ManualClock())
    for _ in range(6):
        limiter.check("login", "alice")
    stats = limiter.stats()
    assert json.loads(json.dumps(stats)) == stats
    assert set(stats) == {"policies", "store", "breaker", "counters"}
    assert stats["policies"] == {
        "login": {
            "allowed": 5,
            "denied": 1,
            "unavailable": 0,
            "near_limit": 2,
            "shadow_denied": 0,
            "sources": {"store": 6, "deny-cache": 0, "lease": 0, "fallback": 0},
        }
    }
    store = stats["store"]
    assert set(store) == {"calls", "latency", "batch_size", "errors"}
    assert store["errors"] == {"store_unavailable": 0, "store_timeout": 0, "store_rejected": 0}
    assert set(store["latency"]) == set(store["batch_size"]) == {"bounds", "counts", "sum", "count"}
    assert store["latency"]["bounds"][0] == 0.0001 and store["latency"]["bounds"][-1] == 2.5
    assert len(store["latency"]["counts"]) == len(store["latency"]["bounds"]) + 1
    assert (stats["breaker"], stats["counters"]) == ({}, limiter.counters())
    assert "alice" not in json.dumps(stats)


def test_calls_of_the_async_limiter_count_too() -> None:
    async def run() -> dict[str, Any]:
        limiter = AsyncLimiter(policies={"login": "fixed-window 2/minute"})
        for _ in range(3):
            await limiter.check("login", "a")
        await limiter.peek("login", "a")
        await limiter.acquire("login", "a", timeout=0)
        assert limiter.to_blocking().stats() == limiter.stats()
        return limiter.stats()

    login = asyncio.run(run())["policies"]["login"]
    assert (login["allowed"], login["denied"]) == (2, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_starts_at_zero() -> None:
    limiter = Limiter(policies={"login": "5/minute"})
    limiter.check("login", "a")
    child = os.fork()
    if child == 0:
        before = limiter.stats()["policies"]["login"]["allowed"]
        limiter.check("login", "a")
        os._exit(10 * before + limiter.stats()["policies"]["login"]["allowed"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert limiter.stats()["policies"]["login"]["allowed"] == 1


def test_a_lost_store_is_told_once_and_so_is_its_return() -> None:
    changes: list[StoreChange] = []
    with Servers("single") as server:
        limiter = Limiter(server.url, timeout=5.0, on_change=changes.append)
        limiter.ping()
        assert set(limiter.stats()["breaker"].values()) == {"ok"}
        server.kill(0)
        for _ in range(6):
            limiter.check("5/minute", "a")
        wait_until("the loss is told", lambda: len(changes) == 1)
        assert set(limiter.stats()["breaker"].values()) == {"lost"}
        server.restart(0)
        wait_until("the return is told", lambda: len(changes) == 2)
        limiter.check("5/minute", "a")
        assert set(limiter.stats()["breaker"].values()) == {"ok"}
    lost, back = changes
    assert (lost.state, back.state) == ("lost", "back")
    assert lost.store == back.store and lost.store in lost.message
    assert lost.since == back.since and abs(lost.since - time.time()) < 60
    assert isinstance(lost, StoreChange) and "lost" in repr(lost)


def test_what_on_change_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fails(change: StoreChange) -> None:
        raise ValueError(f"no {change.state}")

    limiter = Limiter("redis://127.0.0.1:1", timeout=5.0, on_change=fails)
    with caplog.at_level(logging.WARNING, logger="tidegate"):
        for _ in range(6):
            limiter.check("5/minute", "a")
        wait_until("it is logged", lambda: any(record.exc_info for record in caplog.records))
    record = next(record for record in caplog.records if record.exc_info)
    assert record.name == "tidegate" and "on_change" in record.getMessage()
    assert record.exc_info is not None and str(record.exc_info[1]) == "no lost"


def test_on_change_is_a_function() -> None:
    with pytest.raises(TypeError, match="argument 'on_change' must be a function, not 5"):
        Limiter(on_change=5)  # type: ignore[arg-type]
    assert Limiter(on_change=None)


def test_a_key_near_its_limit_is_told_once_in_a_window() -> None:
    told: list[NearLimit] = []
    clock = ManualClock(1_700_000_040)
    limiter = Limiter(policies={"login": "fixed-window 10/minute"}, clock=clock, on_near_limit=told.append)
    for _ in range(12):
        limiter.check("login", "alice")
    wait_until("it is told", lambda: len(told) == 1)
    (near,) = told
    assert (near.policy, near.key, near.notation) == ("login", "alice", "fixed-window 10/minute")
    assert (near.limit, near.remaining, near.reset_after) == (10, 2, 60.0) and "alice" in repr(near)
    clock.advance(60)
    limiter.check("login", "alice", cost=8)
    wait_until("the next window is told", lambda: len(told) == 2)
    half: list[NearLimit] = []
    limiter = Limiter(on_near_limit=half.append, near_limit=0.5)
    limiter.check("10/minute", "bob", cost=5)
    wait_until("half of it is near", lambda: [near.remaining for near in half] == [5])


def test_what_on_near_limit_raises_is_logged_and_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fails(near: NearLimit) -> None:
        raise ValueError(f"no {near.key}")

    limiter = Limiter(on_near_limit=fails)
    with caplog.at_level(logging.WARNING, logger="tidegate"):
        assert limiter.check("1/minute", "alice")
        wait_until("it is logged", lambda: any(record.exc_info for record in caplog.records))
    record = next(record for record in caplog.records if record.exc_info)
    assert record.name == "tidegate" and "on_near_limit" in record.getMessage()
    with pytest.raises(TypeError, match="argument 'on_near_limit' must be a function, not 5"):
        Limiter(on_near_limit=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="near_limit"):
        Limiter(near_limit=1.5)
    assert Limiter(on_near_limit=None)
