"""Blocks that become longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidegate import Limiter, ManualClock, Policy, PolicyError


def test_each_further_block_is_longer() -> None:
    clock = ManualClock(now=1_700_000_000.0)
    policy = Policy("fixed-window 1/s", block_for=["10s", 100, timedelta(minutes=10)], forgive="1h", name="p")
    assert (policy.block_for, policy.forgive) == ([10.0, 100.0, 600.0], 3600.0)
    limiter = Limiter(policies={"p": policy}, clock=clock)
    for length in (10.0, 100.0, 600.0, 600.0):
        assert limiter.check("p", "k")
        denied = limiter.check("p", "k")
        assert (denied.allowed, denied.abnormal, denied.retry_after) == (False, True, length)
        assert denied.as_dict()["abnormal"] is True
        clock.advance(length)
    clock.advance(3600.0)
    assert limiter.check("p", "k")
    assert limiter.check("p", "k").retry_after == 10.0


def test_a_dict_has_lists_too() -> None:
    policies: dict[str, Any] = {"p": {"limits": "5/s", "block_for": ["1m", timedelta(minutes=10)], "forgive": "24h"}}
    assert Limiter(policies=policies).policy("p").block_for == [60.0, 600.0]
    assert Policy("5/s", block_for=("1m", "1h")) == Policy("5/s", block_for=["1m", "1h"])
    assert Policy("5/s", block_for=["1m"]).block_for == 60.0


@pytest.mark.parametrize("wrong", [[], ["1m", 0], ["1m", [2]], ["1m"] * 17, ["1m", True]])
def test_what_is_no_list_of_lengths(wrong: Any) -> None:
    with pytest.raises((PolicyError, TypeError)):
        Policy("5/s", block_for=wrong)
    with pytest.raises(PolicyError, match="block_for"):
        Policy("5/s", forgive="1h")
