"""Limits with named units in every web layer: a request takes the units that `cost` gives for each limit."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import ConfigError, Limiter, ManualClock, Policy
from web_adapter import Adapter

ADDRESS = "203.0.113.9"
LLM = "fixed-window 10/minute; fixed-window 1000 tokens/minute"
POLICIES = {"all": "fixed-window 5/minute", "llm": LLM, "busy": "concurrency 2"}


def made_limiter() -> Limiter:
    return Limiter(policies=POLICIES, clock=ManualClock())


def left(limiter: Limiter, policy: str = "llm", cost: Any = None) -> list[int]:
    """Returns the remaining units of each limit of a policy."""
    given = {"tokens": 0} if cost is None else cost
    return [limit.remaining for limit in limiter.peek(policy, ADDRESS, given).limits]


def test_a_request_takes_of_each_limit_what_it_says(adapter: Adapter) -> None:
    limiter = made_limiter()
    made = adapter.make("llm", limiter=limiter, cost={"tokens": 300})
    answer = made.get()
    assert answer.status == 200
    assert left(limiter) == [9, 700]
    announced = {name.lower(): value for name, value in answer.headers}["ratelimit-policy"]
    assert '"llm-1";q=10;w=60' in announced
    assert '"llm-2";q=1000;qu="tokens";w=60' in announced
    for status in (200, 200, 429):
        assert made.get().status == status
    assert left(limiter) == [7, 100]


def test_a_function_says_the_units_and_settle_and_refund_when_correct_them(adapter: Adapter) -> None:
    limiter = made_limiter()
    given: list[int] = []
    made = adapter.make(
        "llm",
        view=lambda: (given[-1], b""),
        limiter=limiter,
        cost=lambda request: {"tokens": 300},
        settle=lambda response: {"tokens": 120} if response.status_code == 201 else None,
        refund_when=lambda response: response.status_code == 304,
    )
    for status, expected in ((201, [9, 880]), (304, [9, 880]), (200, [8, 580])):
        given.append(status)
        assert made.get().status == status
        assert left(limiter) == expected


@pytest.mark.parametrize("cost", [{"tokens": 300}, lambda request: {"tokens": 300}])
def test_of_several_policies_each_takes_the_units_that_it_counts(adapter: Adapter, cost: Any) -> None:
    limiter = made_limiter()
    made = adapter.make(["all", "llm", "busy"], limiter=limiter, cost=cost, settle=lambda: {"tokens": 250})
    assert made.get().status == 200
    assert left(limiter) == [9, 750]
    assert left(limiter, "all", 1) == [4]


def test_a_policy_may_have_units_of_its_own(adapter: Adapter) -> None:
    limiter = made_limiter()
    made = adapter.make(["all", ("llm", None, {"tokens": 20})], limiter=limiter, cost=2)
    assert made.get().status == 200
    assert (left(limiter, "all", 1), left(limiter)) == ([3], [9, 980])


@pytest.mark.parametrize(
    ("policy", "options", "says"),
    [
        ("llm", {}, '"llm" counts tokens'),
        ("llm", {"cost": 5}, '"llm" counts tokens'),
        (["all", "llm"], {}, '"llm" counts tokens'),
        ("llm", {"cost": {"tokens": 5, "pages": 1}}, "which no policy counts"),
        ("all", {"cost": {"tokens": 5}}, "which no policy counts"),
        ([("all", None, {"tokens": 5})], {}, 'counts no "tokens"'),
    ],
)
def test_units_that_no_request_could_be_asked_are_an_error_at_start(
    adapter: Adapter, policy: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        adapter.make(policy, limiter=made_limiter(), **options).get()
    assert says in raised.value.message
    assert raised.value.code == "config_invalid"


@pytest.mark.parametrize("priority", ["batch", lambda request: "batch"])
def test_a_class_is_for_the_policies_that_have_classes(adapter: Adapter, priority: Any) -> None:
    classed = Policy("fixed-window 10/minute", priorities={"batch": "30%"})
    limiter = Limiter(policies={"all": "50/minute", "classed": classed}, clock=ManualClock())
    made = adapter.make(["all", "classed"], limiter=limiter, cost=7, priority=priority)
    assert [made.get().status, made.get().status] == [200, 429]
    assert (left(limiter, "all", 1), left(limiter, "classed", 1)) == ([43], [3])
    alone = adapter.make("classed", limiter=limiter, priority=priority)
    assert alone.get().status == 429


@pytest.mark.parametrize(("policy", "priority"), [("all", "batch"), (["all", "classed"], "bach"), ("classed", 5)])
def test_a_class_that_no_request_could_have_is_an_error_at_start(adapter: Adapter, policy: Any, priority: Any) -> None:
    classed = Policy("fixed-window 10/minute", priorities={"batch": "30%"})
    limiter = Limiter(policies={"all": "50/minute", "classed": classed}, clock=ManualClock())
    with pytest.raises(ConfigError) as raised:
        adapter.make(policy, limiter=limiter, priority=priority).get()
    assert "priority" in raised.value.message
