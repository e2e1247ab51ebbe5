"""A Decision is settled once, by the limiter that made it. Metadata reaches the journal. Queues have bounds."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import threading
import time
from collections.abc import Callable
from functools import partial
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
    for again in (decision, copy.copy(decision), copy.deepcopy(decision)):
        with pytest.raises(ConfigError, match="settle a Decision once") as caught:
            limiter.settle(again, 0)
        assert caught.value.code == "config_invalid"
    assert used(limiter) == 2
    # Copies count as one Decision, whichever of them is settled.
    decision = limiter.check("p", "k", 5)
    limiter.settle(copy.copy(decision), 5)
    with pytest.raises(ConfigError, match="settle a Decision once"):
        limiter.to_async().to_blocking().settle(decision, 0)


def test_a_settle_of_a_peek_charges(limiter: Limiter) -> None:
    limiter.settle(limiter.peek("p", "k", 5), 3)
    assert used(limiter) == 3
    limiter.settle(limiter.peek("p", "k"), 0)
    assert used(limiter) == 3


def test_a_decision_that_left_its_process_cannot_be_settled(limiter: Limiter) -> None:
    decision = limiter.check("p", "k", 5)
    for _ in range(3):
        with pytest.raises(ConfigError, match=r"left the process .* or charge or refund") as caught:
            limiter.settle(pickle.loads(pickle.dumps(decision)), 0)
        assert caught.value.code == "config_invalid"
    assert used(limiter) == 5
    limiter.settle(decision, 2)
    assert used(limiter) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_decision_is_settled_in_the_process_that_got_it(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"p": "10/hour"}, prefix=prefix, timeout=5.0)
    decision = limiter.check("p", "k", 5)
    child = os.fork()
    if child == 0:
        try:
            limiter.settle(decision, 0)
        except ConfigError as refused:
            os._exit(7 if "left the process" in str(refused) else 1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    limiter.settle(decision, 2)
    assert used(limiter) == 2


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
    same.settle(decision, 2)
    assert used(one) == 2


def test_the_async_limiter_settles_once(limiter: Limiter) -> None:
    async def run() -> None:
        awaitable = limiter.to_async()
        decision = await awaitable.check("p", "k", 5)
        await awaitable.settle(decision, 2)
        with pytest.raises(ConfigError, match="settle a Decision once"):
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
    limiter.check_all([("p", "k", 2, "first"), ("p", "other")])

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
        assert [attempt.meta for attempt in limiter.journal("c", "k")] == ["awaited hold", "held"]
    else:
        assert [attempt.meta for attempt in limiter.journal("p", "k")] == ["first", "for ever", "acquired"]
    wrong: Any = [("p", "k", 1, 5)]
    with pytest.raises(TypeError):
        limiter.check_all(wrong)
    with pytest.raises(TypeError, match="policy, key, cost, meta"):
        limiter.check_all([("p", "k", 1, None, None, None)])


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


def test_a_call_that_gives_nothing_back_refuses_a_concurrency_limit(store: str, prefix: str) -> None:
    policies = {"exports": "concurrency 2", "both": "10/hour; concurrency 2", "rate": "10/hour"}
    limiter = Limiter(store, policies=policies, prefix=prefix, timeout=5.0)
    awaitable = AsyncLimiter(store, policies=policies, prefix=prefix, timeout=5.0)

    async def awaited(call: Callable[[], Any]) -> None:
        await call()

    for policy in ("exports", "both"):
        for one in (limiter, awaitable):
            for call in (
                partial(one.check, policy, "k"),
                partial(one.acquire, policy, "k", timeout=1.0),
                partial(one.check_all, [("rate", "k"), (policy, "k")]),
            ):
                with pytest.raises(ConfigError, match="take them with hold"):
                    asyncio.run(awaited(call)) if one is awaitable else call()
        assert limiter.peek(policy, "k").limits[-1].remaining == 2
    with pytest.raises(ConfigError, match="ask with check, or wait with acquire"):
        limiter.hold("rate", "k")
    assert limiter.peek("rate", "k").remaining == 10


SEVERAL = {"rpm": "60/hour", "tpm": "1000/hour", "tpd": "9000/day"}


@pytest.mark.parametrize(
    ("actual", "left"),
    [
        (300, [59, 700, 8700]),
        ([1, 300, 200], [59, 700, 8800]),
        ((None, 300, None), [59, 700, 8500]),
        ({"tpm": 300}, [59, 700, 8500]),
        ({"rpm": 0, "tpd": 0}, [60, 500, 9000]),
    ],
)
def test_of_several_each_is_settled_by_what_it_counts(store: str, prefix: str, actual: Any, left: list[int]) -> None:
    entries = [("rpm", "k"), ("tpm", "k", 500), ("tpd", "k", 500)]
    limiter = Limiter(store, policies=SEVERAL, prefix=prefix, timeout=5.0)
    decision = limiter.check_all(entries)
    limiter.settle(decision, actual)
    assert [limiter.peek(policy, "k").remaining for policy in SEVERAL] == left
    with pytest.raises(ConfigError, match="settled before"):
        limiter.settle(decision, actual)

    async def run() -> None:
        awaitable = AsyncLimiter(policies=SEVERAL)
        await awaitable.settle(await awaitable.check_all(entries), actual)
        assert [(await awaitable.peek(policy, "k")).remaining for policy in SEVERAL] == left

    asyncio.run(run())


def test_wrong_numbers_of_several_settle_nothing(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies=SEVERAL, prefix=prefix, timeout=5.0)
    decision = limiter.check_all([("rpm", "k"), ("tpm", "k", 500)])
    wrong: list[tuple[Any, str]] = [
        ([1], "1 numbers for a Decision of 2 entries"),
        ({"tpd": 1}, 'not a policy of the Decision: it has "rpm", "tpm"'),
        ([1, -1], "-1"),
        ([1, True], "True"),
        ({"rpm": "5"}, "5"),
    ]
    for actual, says in wrong:
        with pytest.raises(CostError, match=says):
            limiter.settle(decision, actual)
    with pytest.raises(TypeError):
        limiter.settle(decision, {5: 1})  # type: ignore[dict-item]
    limiter.settle(decision, 400)
    assert [limiter.peek(policy, "k").remaining for policy in ("rpm", "tpm")] == [59, 600]


def test_units_that_are_held_are_never_settled(store: str, prefix: str) -> None:
    policies = {"exports": "concurrency 8", "both": "concurrency 8; 100/hour"}
    limiter = Limiter(store, policies=policies, prefix=prefix, timeout=20.0)
    with limiter.hold("exports", "k") as hold, limiter.hold("both", "k") as both:
        limiter.settle(hold.decision, 5)
        limiter.settle(both.decision, 5)
        assert limiter.peek("exports", "k").remaining == 7
        assert [limit.remaining for limit in limiter.peek("both", "k").limits] == [7, 95]
