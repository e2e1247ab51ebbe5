"""`pickle` and `copy`: which objects they take, and which belong to one process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tidegate import (
    AsyncLimiter,
    ClosedError,
    ConfigError,
    CostError,
    Decision,
    KeyInvalid,
    Limit,
    Limiter,
    ManualClock,
    Policy,
    PolicyError,
    RateLimited,
    StoreError,
    TidegateError,
)


def by(protocol: int) -> Callable[[Any], Any]:
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


WAYS = {f"protocol {number}": by(number) for number in range(pickle.HIGHEST_PROTOCOL + 1)}
WAYS |= {"copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def restore(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    way: Callable[[Any], Any] = request.param
    return way


def decisions() -> list[Decision]:
    """Decisions of every kind."""
    limiter = Limiter(
        policies={
            "login": "20/minute; 5/3s",
            "rich": Policy(
                [Limit("token-bucket", 5, "week", initial=1), Limit("calendar-window", 9, "month")], block_for="10m"
            ),
            "queue": "leaky-bucket 10/s",
            "shadow": Policy("1/minute", shadow=True, journal=3),
        },
        clock=ManualClock(),
    )
    made = [limiter.check("login", "al\nice", cost=cost) for cost in (2, 3, 1, 10**9)]
    made += [limiter.check("rich", "") for _ in range(2)]
    made += [limiter.check("queue", "k") for _ in range(2)]
    made += [limiter.check("shadow", "k") for _ in range(2)]
    made += [limiter.check("gcra 1/s burst 3", "ü"), limiter.check("0/minute", "k"), limiter.peek("login", "b")]
    made += [limiter.check_all([("login", "x"), ("1/day", "x", cost)]) for cost in (1, 2)]
    for choice in ("closed", "open", "local"):
        made.append(Limiter("redis://127.0.0.1:1", on_store_error=choice).check("1/s", "k"))
    return made


def all_of(decision: Decision) -> tuple[Any, ...]:
    return decision.as_dict(), repr(decision), bool(decision), hash(decision), decision.limits, decision.decisions


def test_a_pickled_decision_is_equal(restore: Callable[[Any], Any]) -> None:
    for decision in decisions():
        copied = restore(decision)
        assert type(copied) is Decision
        assert copied == decision and all_of(copied) == all_of(decision)


def test_a_pickled_denial_without_a_store_stays_a_503() -> None:
    from tidegate._tidegate import status

    denied = Limiter("redis://127.0.0.1:1", on_store_error="closed").check("1/s", "k")
    assert status(denied) == status(pickle.loads(pickle.dumps(denied))) == 503


def test_a_copy_can_be_settled_and_a_pickled_decision_cannot(restore: Callable[[Any], Any]) -> None:
    limiter = Limiter(policies={"api": "100/hour", "other": "10/hour"})
    one, whole = limiter.check("api", "a", cost=10), limiter.check_all([("api", "b", 5), ("other", "b", 5)])
    for decision in (one, whole):
        restored = restore(decision)
        if restored is not decision:
            with pytest.raises(ConfigError, match="left the process"):
                limiter.settle(restored, 1)
        limiter.settle(decision, 1)
    left = [limiter.peek(*about).remaining for about in (("api", "a"), ("api", "b"), ("other", "b"))]
    assert left == [99, 99, 9]


def test_wrong_numbers_of_a_decision_raise() -> None:
    reduced: Any = Limiter().check("5/s", "k").__reduce__()
    make, (*about, numbers, parts) = reduced
    for wrong in (numbers[:-1], (), (9, *numbers[1:]), (numbers[0], 9, *numbers[2:]), numbers + numbers[-4:] * 2):
        with pytest.raises(ConfigError, match="not the numbers of a Decision"):
            make(*about, wrong, parts)


ERRORS: list[TidegateError] = [
    StoreError("gone", "store_timeout"),
    StoreError("refused", "store_rejected"),
    ConfigError("no"),
    ClosedError("shut"),
    KeyInvalid("key"),
    CostError("cost"),
    TidegateError("other", "new_code"),
    PolicyError("nonsense", "policy_invalid", "a.yaml", 3, 7),
    PolicyError("nonsense", "policy_invalid", None, 1, 7, "5/fortnight"),
]


@pytest.mark.parametrize("error", [*ERRORS, RateLimited(Limiter().check("0/s", "k"))], ids=lambda error: error.code)
def test_a_pickled_exception_is_equal(error: TidegateError, restore: Callable[[Any], Any]) -> None:
    error.add_note("a note") if hasattr(error, "add_note") else None
    copied = restore(error)
    assert type(copied) is type(error)
    assert (str(copied), repr(copied), copied.args) == (str(error), repr(error), error.args)
    assert vars(copied) == vars(error)


@pytest.mark.parametrize("value", [Limiter(), AsyncLimiter(), ManualClock()], ids=lambda value: type(value).__name__)
def test_an_object_of_one_process_cannot_be_pickled(value: object, restore: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=f"{type(value).__name__} cannot be pickled or copied"):
        restore(value)


def _checked(cost: int) -> Decision:
    return Limiter().check("5/s", "k", cost)


def _refused(cost: int) -> None:
    raise RateLimited(_checked(cost))


def test_decisions_and_exceptions_return_from_a_process_pool() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert [decision.remaining for decision in pool.map(_checked, [1, 2])] == [4, 3]
        with pytest.raises(RateLimited) as caught:
            pool.submit(_refused, 9).result()
    assert caught.value.decision.cost == 9
