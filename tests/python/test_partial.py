"""Partial checks, and the fields that came with them, where only Python can show it. The vectors have the rest."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from tidegate import AsyncLimiter, ConfigError, Decision, Limiter, ManualClock, Policy


def both(**options: Any) -> list[Any]:
    return [Limiter(**options), AsyncLimiter(**options)]


def answer(call: Any) -> Any:
    async def awaited() -> Any:
        return await call

    return asyncio.run(awaited()) if hasattr(call, "__await__") else call


@pytest.mark.parametrize("limiter", both(policies={"jobs": "fixed-window 10/minute"}))
def test_a_partial_check_takes_what_there_is(limiter: Any) -> None:
    granted = [answer(limiter.check("jobs", "worker", 4, partial=True)).granted for _ in range(4)]
    assert granted == [4, 4, 2, 0]
    none: Decision = answer(limiter.check("jobs", "worker", cost=4, partial=True))
    assert not none and none.cost == 4 and none.next_after == none.retry_after


@pytest.mark.parametrize("limiter", both())
def test_where_a_part_is_of_no_use_it_is_refused(limiter: Any) -> None:
    for policy in ("concurrency 5", "leaky-bucket 5/s"):
        with pytest.raises(ConfigError, match="partial") as refused:
            answer(limiter.check(policy, "k", 2, partial=True))
        assert refused.value.code == "config_invalid"
    with pytest.raises(ConfigError, match="all or nothing"):
        answer(limiter.check_all([("5/s", "a"), ("5/s", "b")], partial=True))
    for call in (limiter.peek, limiter.acquire, limiter.hold):
        with pytest.raises(TypeError, match="partial"):
            answer(call("5/s", "k", partial=True))
    with pytest.raises(TypeError):
        answer(limiter.check("5/s", "k", partial="yes"))


def test_a_partial_check_without_the_word_is_whole() -> None:
    limiter = Limiter(policies={"jobs": "fixed-window 3/minute"})
    assert not limiter.check("jobs", "k", 4, partial=False)
    assert limiter.check("jobs", "k", 4, partial=True, meta="m").granted == 3


def test_next_after_and_over_are_seconds_and_units() -> None:
    limiter = Limiter(policies={"a": "fixed-window 2/minute; gcra 10/s"}, clock=ManualClock())
    first = limiter.check("a", "k")
    assert (first.next_after, [one.next_after for one in first.limits]) == (0.0, [0.0, 0.0])
    assert limiter.check("a", "k").next_after == 60.0
    charged = limiter.charge("a", "k", 3)
    assert (charged.granted, charged.remaining, charged.next_after) == (3, 0, None), "3 never fit into 2"
    assert [one.over for one in charged.limits] == [3, 0]
    assert limiter.check("a", "k", 99).next_after is None


def test_unavailable_says_that_the_store_is_missing() -> None:
    limiter = Limiter("redis://127.0.0.1:1", on_store_error="closed")
    missing = limiter.check("5/s", "k")
    assert missing.unavailable and not missing and missing.granted == 0
    assert "unavailable=True" in repr(missing) and missing.as_dict()["unavailable"] is True
    refused = Limiter().check("0/s", "k")
    assert not refused.unavailable and "unavailable" not in repr(refused)
    limiter = Limiter("redis://127.0.0.1:1", policies={"p": Policy("5/s", on_store_error="closed", shadow=True)})
    assert not limiter.check("p", "k").unavailable, "it is allowed"


def test_a_partial_decision_can_be_sent_to_another_process() -> None:
    limiter = Limiter(policies={"jobs": "fixed-window 10/minute"})
    limiter.check("jobs", "k", 8)
    part: Decision = pickle.loads(pickle.dumps(limiter.check("jobs", "k", 5, partial=True)))
    assert (part.granted, part.cost) == (2, 5)
    over = limiter.charge("jobs", "k", 4)
    again: Decision = pickle.loads(pickle.dumps(over))
    assert again == over and again.limits[0].over == 4 and again.granted == 4
