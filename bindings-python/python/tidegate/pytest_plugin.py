"""Fixtures for tests with pytest, which loads them if tidegate is installed.

    def test_the_sixth_login_waits(tidegate_limiter, tidegate_clock):
        assert all(tidegate_limiter.check("5/minute", "alice") for _ in range(5))
        assert not tidegate_limiter.check("5/minute", "alice")
        tidegate_clock.advance(63)
        assert tidegate_limiter.check("5/minute", "alice")

Each test has its own clock and its own usage, in memory. To use policies by name, replace the fixture
`tidegate_policies` in a module or a `conftest.py`::

    @pytest.fixture
    def tidegate_policies():
        return {"login": "20/minute; 5/3s"}

`pytest -p no:tidegate` leaves the fixtures out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ._tidegate import AsyncLimiter, Limiter, ManualClock

__all__ = ["tidegate_async_limiter", "tidegate_clock", "tidegate_limiter", "tidegate_policies"]


@pytest.fixture
def tidegate_clock() -> ManualClock:
    """The clock of `tidegate_limiter`. It stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def tidegate_policies() -> Mapping[str, Any]:
    """The policies of `tidegate_limiter` by name. There are none until a fixture of this name returns some."""
    return {}


@pytest.fixture
def tidegate_limiter(tidegate_clock: ManualClock, tidegate_policies: Mapping[str, Any]) -> Iterator[Limiter]:
    """A limiter in memory, with `tidegate_policies` and `tidegate_clock`. It is closed after the test."""
    with Limiter(policies=tidegate_policies, clock=tidegate_clock) as limiter:
        yield limiter


@pytest.fixture
def tidegate_async_limiter(tidegate_limiter: Limiter) -> AsyncLimiter:
    """`tidegate_limiter` for event loops, with the same policies, usage and clock."""
    return tidegate_limiter.to_async()
