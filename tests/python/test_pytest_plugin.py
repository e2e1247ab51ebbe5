"""The fixtures that the package brings for pytest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from paths import ROOT
from snippets import blocks_of
from tidegate import AsyncLimiter, ClosedError, Limiter, ManualClock

seen: list[Limiter] = []


@pytest.fixture
def tidegate_policies() -> dict[str, str]:
    return {"login": "fixed-window 2/minute"}


@pytest.mark.parametrize("round", [1, 2])
def test_each_test_has_usage_and_a_clock_of_its_own(
    round: int, tidegate_limiter: Limiter, tidegate_clock: ManualClock
) -> None:
    for limiter in seen:
        with pytest.raises(ClosedError):
            limiter.check("login", "alice")
    seen.append(tidegate_limiter)
    assert tidegate_clock.now() == ManualClock().now()
    assert [bool(tidegate_limiter.check("login", "alice")) for _ in range(3)] == [True, True, False]
    tidegate_clock.advance(60)
    assert tidegate_limiter.check("login", "alice")


def test_the_limiter_for_event_loops_is_the_same(
    tidegate_async_limiter: AsyncLimiter, tidegate_limiter: Limiter
) -> None:
    async def main() -> int:
        return (await tidegate_async_limiter.check("login", "alice")).remaining

    assert asyncio.run(main()) == 1
    assert tidegate_limiter.peek("login", "alice").remaining == 1


def test_pytest_finds_them_by_itself_and_loads_them_only_where_they_are_wanted(tmp_path: Path) -> None:
    (entry,) = [entry for entry in entry_points(group="pytest11") if entry.name == "tidegate"]
    assert entry.value == "tidegate.pytest_plugin"
    (tmp_path / "test_it.py").write_text(
        "def test_it(tidegate_limiter, tidegate_clock):\n"
        "    assert tidegate_limiter.check('1/minute', 'a') and not tidegate_limiter.check('1/minute', 'a')\n"
        "    tidegate_clock.advance(63)\n"
        "    assert tidegate_limiter.check('1/minute', 'a')\n"
    )
    # The test file of the page about testing.
    (block,) = [block for block in blocks_of(ROOT / "docs/guides/testing.md") if block.title]
    (tmp_path / block.title).write_text(block.code)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    loaded = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert "2 passed" in loaded.stdout, loaded.stdout
    without = subprocess.run([*run, "-p", "no:tidegate"], cwd=tmp_path, capture_output=True, text=True)
    assert without.returncode == 1
    assert "fixture 'tidegate_limiter' not found" in without.stdout
