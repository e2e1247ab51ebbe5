"""The lines of refusals that a limiter may log."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from tidegate import AsyncLimiter, Limiter, ManualClock, Policy
from tidegate._options import LimiterOptions
from tidegate._tidegate import hashed
from tidegate.asgi import TidegateMiddleware, header
from web import call_asgi

POLICIES = {"login": "fixed-window 1/minute", "trial": Policy("fixed-window 1/minute", shadow=True)}


async def plain_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def lines(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """Returns the lines. It waits for them, because a separate thread writes the log."""
    deadline = time.monotonic() + 10
    while len(caplog.records) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all((record.name, record.levelname) == ("tidegate", "WARNING") for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_refusal_is_a_line_of_the_logger(caplog: pytest.LogCaptureFixture, asynchronous: bool) -> None:
    options = LimiterOptions(policies=POLICIES, clock=ManualClock(), log_refusals=True)
    with Limiter(**options) as limiter:
        for key in ("alice", "alice", "bob"):
            for policy in ("login", "trial"):
                if asynchronous:
                    waiting: AsyncLimiter = limiter.to_async()

                    async def check(waiting: AsyncLimiter = waiting, policy: str = policy, key: str = key) -> None:
                        await waiting.check(policy, key)

                    asyncio.run(check())
                else:
                    limiter.check(policy, key)
        (line,) = lines(caplog, 1)
    refused = 'limit "fixed-window 1/minute", retry after 60.000 s'
    assert line == f'refused: policy "login", key "alice", {refused}, answered by store'


def test_it_is_off_by_default(caplog: pytest.LogCaptureFixture) -> None:
    with Limiter(policies=POLICIES) as limiter:
        for _ in range(2):
            limiter.check("login", "alice")
        time.sleep(0.1)
    assert caplog.records == []


def test_a_flood_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Limiter(policies=POLICIES, log_refusals=True) as limiter:
        begun = time.monotonic()
        for _ in range(5_000):
            limiter.check("login", "alice")
        seconds = int(time.monotonic() - begun) + 2
        time.sleep(0.2)
    assert 1 <= len(lines(caplog, 1)) <= 10 * seconds


def test_the_key_of_a_field_is_its_digest(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(policies=POLICIES, log_refusals=True)
    app = TidegateMiddleware(plain_app, "login", limiter=limiter, key=header("X-API-Key"))
    secret = "a secret of one client"
    assert [call_asgi(app, headers={"X-API-Key": secret}).status for _ in range(2)] == [200, 429]
    (line,) = lines(caplog, 1)
    assert secret not in line
    assert hashed(secret) in line


def test_it_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="log_refusals"):
        Limiter(log_refusals="yes")  # type: ignore[arg-type]
