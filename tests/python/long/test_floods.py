"""Floods from clients take little memory. Each runs `floods.py` in a process with a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("floods.py")
UNREACHABLE = "redis://127.0.0.1:1/0"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process")


def flood(name: str, store: str) -> None:
    # Each arena of the allocator reserves address space that is never used, and the limit would count it.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    run = subprocess.run(
        [sys.executable, PROGRAM, name, store], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0 and run.stdout == "bounded\n", f"{run.returncode}: {run.stdout}{run.stderr[-2000:]}"


@pytest.mark.parametrize("name", ["denied_keys", "denied_keys_asyncio", "notations", "policies"])
def test_redis(name: str, redis_url: str) -> None:
    flood(name, redis_url)


@pytest.mark.parametrize("name", ["denied_keys", "notations", "limits_storage"])
def test_memory(name: str) -> None:
    flood(name, "memory://")


def test_an_outage() -> None:
    flood("denied_keys", UNREACHABLE)
