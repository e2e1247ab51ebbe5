"""A file store on a machine with a changed clock: calendar windows follow the clock, and so do the times it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clock import Clock

HOUR = 3600.0

# Answers one question for each line, with a clock that the test sets.
PROGRAM = """
import json, sys, time
from tidegate import Limiter

limiter = Limiter(store=sys.argv[1], timeout=10, on_store_error="raise", policies={"login": "1000/hour"})
for line in sys.stdin:
    question = json.loads(line)
    if question.get("block"):
        limiter.block(question["policy"], "k", question["block"])
    decision = getattr(limiter, question["do"])(question["policy"], "k")
    answer = {name: getattr(decision, name) for name in ("allowed", "remaining", "retry_after", "reset_at")}
    print(json.dumps({**answer, "clock": time.time()}), flush=True)
"""

WINDOWS = [
    "fixed-window 2/hour",
    "sliding-window 2/hour",
    "sliding-log 2/hour",
    "sliding-counter 2/hour",
    "token-bucket 2/hour",
    "gcra 2/hour",
    "leaky-bucket 2/hour",
]

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(str(tmp_path))


@pytest.fixture
def ask(tmp_path: Path, clock: Clock) -> Iterator[Ask]:
    url = f"file://{tmp_path}/limits?max_bytes=1MB"
    environment = {**os.environ, **clock.environment}
    command = [sys.executable, "-c", PROGRAM, url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(policy: str, do: str = "check", **more: Any) -> dict[str, Any]:
            stdin.write(json.dumps({"policy": policy, "do": do, **more}) + "\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        yield ask
        stdin.close()
        process.wait(timeout=60)


def until(ask: Ask, policy: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Peeks until an answer fulfils the condition."""
    end = time.monotonic() + 60
    while True:
        answer = ask(policy, "peek")
        if holds(answer):
            return answer
        assert time.monotonic() < end, answer
        time.sleep(0.05)


def test_a_clock_that_is_ahead_for_a_while_gives_nothing_back(ask: Ask, clock: Clock) -> None:
    for policy in WINDOWS:
        while ask(policy)["allowed"]:
            pass
    ask("login", "peek", block=HOUR)
    policies = [*WINDOWS, "login"]
    before = {policy: ask(policy, "peek") for policy in policies}
    for ahead in (2 * HOUR, -2 * HOUR, -30 * HOUR, 30 * HOUR):
        clock.jump(ahead)
        now = clock.ahead
        resets_at = before[policies[0]]["reset_at"] + now
        until(ask, policies[0], lambda answer, resets_at=resets_at: abs(answer["reset_at"] - resets_at) < 1)
        for policy in policies:
            answer = ask(policy)
            assert not answer["allowed"], (policy, now, answer)
            waited = before[policy]["retry_after"] - answer["retry_after"]
            assert 0 <= waited < 300, (policy, now, answer)
            assert abs(answer["reset_at"] - before[policy]["reset_at"] - now) < 1, (policy, now, answer)


def test_windows_of_the_calendar_follow_the_clock(ask: Ask, clock: Clock) -> None:
    week = 7 * 24 * HOUR
    calendars = ("calendar-window 2/week", "calendar-window 2/week in Europe/Berlin")
    for policy in (*calendars, "2/week; calendar-window 2/week"):
        while ask(policy)["allowed"]:
            pass
    clock.jump(week)
    for policy in calendars:
        # The clock is in a later week, so the window ends with that week.
        until(ask, policy, lambda answer: bool(answer["allowed"]))
        answer = ask(policy)
        assert answer["allowed"] and answer["remaining"] == 1, answer
        assert 0 < answer["reset_at"] - answer["clock"] <= week, answer
    both = ask("2/week; calendar-window 2/week")
    assert not both["allowed"] and both["retry_after"] > 6 * 24 * HOUR, both
    assert abs(both["reset_at"] - both["clock"] - both["retry_after"]) < 60, both
