"""A Decision is settled once, by the limiter that made it; metadata reaches the journal; queues have bounds."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from typing import Any

import pytest

from tidegate import AsyncLimiter, Limiter, ManualClock, Policy
from tidegate._options import LimiterOptions
from tidegate.errors import ConfigError, CostError


def used(limiter: Limiter, key: str = "k") -> int:
    return 10 - limiter.peek("p", key).remaining


@pytest.fixture
def limiter() -> Limiter:
    return Limiter(policies={"p": "10/hour", "q": "20/hour"})


def test_a_second_settle_is_an_error_and_changes_nothing(limiter: Limiter) -> None:
    decision = limiter.check("p", "k", 5)
    limiter.settle(decision, 2)
    for again in (decision, copy.copy(decision), copy.deepcopy(decision), pickle.loads(pickle.dumps(decision))):
        with pytest.raises(ConfigError, match="settled once") as caught:
            limiter.settle(again, 0)
        assert caught.value.code == "config_invalid"
    assert used(limiter) == 2
    # Copies share it, whichever is settled.
    decision = limiter.check("p", "k", 5)
    limiter.settle(copy.copy(decision), 5)
    with pytest.raises(ConfigError, match="settled once"):
        limiter.to_async().to_blocking().settle(decision, 0)


def test_each_entry_of_check_all_is_settled_once(limiter: Limiter) -> None:
    whole = limiter.check_all([("p", "k", 5), ("q", "k", 5)])
    limiter.settle(whole.decisions[1], 3)
    with pytest.raises(ConfigError, match='"q" was settled'):
        limiter.settle(whole, 0)
    assert used(limiter) == 5, "nothing of the whole was settled"
    limiter.settle(whole.decisions[0], 4)
    assert used(limiter) == 4


def test_a_wrong_cost_settles_nothing(limiter: Limiter) -> None:
    decision = limiter.check("p", "k", 5)
    with pytest.raises(CostError):
        limiter.settle(decision, 2**53)
    limiter.settle(decision, 1)
    assert used(limiter) == 1


def test_a_decision_of_another_limiter_is_an_error(limiter: Limiter, store: str, prefix: str) -> None:
    other = Limiter(policies={"p": "10/hour"})
    with pytest.raises(ConfigError, match="another limiter"):
        other.settle(limiter.check("p", "k", 5), 0)
    if store.startswith("memory"):
        return
    one, same, another = (
        Limiter(store, policies={"p": "10/hour"}, prefix=name, timeout=5.0) for name in (prefix, prefix, f"{prefix}x")
    )
    decision = one.check("p", "k", 5)
    with pytest.raises(ConfigError, match="another limiter"):
        another.settle(decision, 0)
    same.settle(pickle.loads(pickle.dumps(decision)), 2)
    assert used(one) == 2


def test_the_async_limiter_settles_once(limiter: Limiter) -> None:
    async def run() -> None:
        awaitable = limiter.to_async()
        decision = await awaitable.check("p", "k", 5)
        await awaitable.settle(decision, 2)
        with pytest.raises(ConfigError, match="settled once"):
            await awaitable.settle(decision, 2)

    asyncio.run(run())
    assert used(limiter) == 2


JOURNAL = {"p": Policy("10/hour", journal=9), "c": Policy("concurrency 3", journal=9)}


def test_metadata_of_acquire_hold_and_check_all_is_in_the_journal(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies=JOURNAL, prefix=prefix, timeout=5.0)
    limiter.acquire("p", "k", 1, 1.0, meta="acquired")
    limiter.acquire("p", "k", timeout=None, meta=b"for ever")
    with limiter.hold("c", "k", meta="held") as hold:
        assert hold.decision
    limiter.check_all([("p", "k", 2, "first"), ("c", "k", 1, None), ("p", "other")])

    async def run() -> None:
        awaitable = AsyncLimiter(store, policies=JOURNAL, prefix=prefix, timeout=5.0)
        await awaitable.acquire("p", "k", meta="awaited")
        async with awaitable.hold("c", "k", meta="awaited hold"):
            pass
        await awaitable.check_all([("p", "k", 1, b"second")])

    if store.startswith("redis"):
        asyncio.run(run())
        expected = ["second", "awaited", "first", "for ever", "acquired"]
        assert [attempt.meta for attempt in limiter.journal("p", "k")] == expected
        assert [attempt.meta for attempt in limiter.journal("c", "k")] == ["awaited hold", None, "held"]
    else:
        assert [attempt.meta for attempt in limiter.journal("p", "k")] == ["first", "for ever", "acquired"]
    wrong: Any = [("p", "k", 1, 5)]
    with pytest.raises(TypeError):
        limiter.check_all(wrong)
    with pytest.raises(TypeError, match="policy, key, cost, meta"):
        limiter.check_all([("p", "k", 1, None, None)])


def test_beyond_the_bounds_acquire_is_denied_at_once() -> None:
    clock = ManualClock()
    for options in (LimiterOptions(clock=clock, max_waiting=2), LimiterOptions(clock=clock, max_waiting_per_key=2)):
        limiter = Limiter(**options)
        limiter.check("gcra 1/s", "k")
        threads = [threading.Thread(target=limiter.acquire, args=("gcra 1/s", "k")) for _ in range(2)]
        for thread in threads:
            thread.start()
        while limiter.waiting("gcra 1/s", "k") < 2:
            time.sleep(0.001)
        denied = limiter.acquire("gcra 1/s", "k")
        assert not denied and denied.retry_after == 3.0
        assert limiter.counters()["acquires_refused"] == 1
        while any(thread.is_alive() for thread in threads):
            clock.advance(1.0)
            time.sleep(0.001)


@pytest.mark.parametrize("wrong", [0, -1, 2**70])
def test_bounds_are_numbers_from_one_on(wrong: int) -> None:
    for name in ("max_waiting", "max_waiting_per_key"):
        options: dict[str, Any] = {name: wrong}
        with pytest.raises(ConfigError, match=name):
            Limiter(**options)
        for given in (True, "5", 1.5):
            options = {name: given}
            with pytest.raises(TypeError, match=name):
                Limiter(**options)
