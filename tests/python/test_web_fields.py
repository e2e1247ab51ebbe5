"""The fields that announce limits, as an independent parser of structured fields reads them from every web layer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate import Limiter, ManualClock, Policy
from web import SeenResponse
from web_adapters import Adapter

# A policy with two limits, one that holds units, and one with a limit. The fields keep the order of the route.
POLICIES = {"login": "fixed-window 20/minute; fixed-window 2/3s", "slots": "concurrency 1", "all": "gcra 20/minute"}
ANNOUNCED = {
    "login-1": {"q": 20, "w": 60},
    "login-2": {"q": 2, "w": 3},
    "slots": {"q": 1, "qu": "concurrent-requests"},
    "all": {"q": 20, "w": 60},
}
TEXT = '"login-1";q=20;w=60, "login-2";q=2;w=3, "slots";q=1;qu="concurrent-requests", "all";q=20;w=60'


def announced(seen: SeenResponse) -> dict[str, Any]:
    """Returns the items of RateLimit. Each names an item of RateLimit-Policy, which is the same on every response."""
    assert seen["RateLimit-Policy"] == TEXT
    assert seen.items("RateLimit-Policy") == ANNOUNCED
    items = seen.items("RateLimit")
    assert items.keys() <= ANNOUNCED.keys()
    return items


def violated(seen: SeenResponse) -> list[str]:
    names: list[str] = json.loads(seen.body)["violated-policies"]
    assert set(names) <= ANNOUNCED.keys()
    return names


def test_every_response_of_a_route_announces_the_same_policies(adapter: Adapter, clock: ManualClock) -> None:
    limiter = Limiter(policies=POLICIES, clock=clock)
    made = adapter.make(["login", "slots", "all"], limiter=limiter)
    seen = made.get()
    assert seen.status == 200
    assert announced(seen) == {"login-2": {"r": 1, "t": 3}, "slots": {"r": 0}, "all": {"r": 19, "t": 3}}
    with limiter.hold("slots", "203.0.113.9"):
        # The layer does not ask the other policies, and still announces them.
        seen = made.get()
        assert seen.status == 429
        assert announced(seen) == {"slots": {"r": 0}}
        assert violated(seen) == ["slots"]
    assert announced(made.get())["login-2"] == {"r": 0, "t": 3}
    seen = made.get()
    assert seen.status == 429
    assert announced(seen)["login-2"] == {"r": 0, "t": 3}
    assert violated(seen) == ["login-2"]
    for _ in range(9):
        clock.advance(3)
        made.get()
        seen = made.get()
    # Another limit binds, and the announced policies stay the same.
    clock.advance(3)
    seen = made.get()
    assert seen.status == 429
    assert announced(seen)["login-1"] == {"r": 0, "t": 30}
    assert violated(seen) == ["login-1"]


def test_t_is_the_time_until_more_units(adapter: Adapter, clock: ManualClock) -> None:
    made = adapter.make("p", policies={"p": "gcra 20/minute"}, clock=clock)
    last = [made.get() for _ in range(20)][-1]
    assert last.status == 200
    assert last.items("RateLimit") == {"p": {"r": 0, "t": 3}}
    clock.advance(3)
    assert made.get().status == 200


@pytest.mark.parametrize("on_store_error", ["closed", "raise"])
def test_a_missing_store_leaves_the_policies(adapter: Adapter, on_store_error: str) -> None:
    made = adapter.make(
        ["login", "all"], store="redis://127.0.0.1:1/0", on_store_error=on_store_error, policies=POLICIES
    )
    seen = made.get()
    assert seen.status == 503
    assert seen.items("RateLimit-Policy") == {name: ANNOUNCED[name] for name in ("login-1", "login-2", "all")}
    assert "RateLimit" not in seen, "the store that knows is missing"
    assert violated(seen) == ["login-1", "login-2", "all"]


@pytest.mark.parametrize("on_store_error", ["closed", "raise"])
def test_a_missing_store_and_one_policy(adapter: Adapter, on_store_error: str) -> None:
    made = adapter.make("all", store="redis://127.0.0.1:1/0", on_store_error=on_store_error, policies=POLICIES)
    seen = made.get()
    assert (seen.status, seen["RateLimit-Policy"], violated(seen)) == (503, '"all";q=20;w=60', ["all"])
    quiet = adapter.make(
        "all", store="redis://127.0.0.1:1/0", on_store_error=on_store_error, policies=POLICIES, headers="off"
    )
    assert "RateLimit-Policy" not in quiet.get()


def test_both_revisions_of_the_draft_have_one_form(adapter: Adapter) -> None:
    both = [adapter.make("all", policies=POLICIES, headers=which).get() for which in ("ietf", "ietf-10", "ietf-11")]
    assert {seen["RateLimit-Policy"] for seen in both} == {'"all";q=20;w=60'}
    assert {seen["RateLimit"] for seen in both} == {'"all";r=19;t=3'}


def test_names_are_escaped_and_read_back(adapter: Adapter) -> None:
    made = adapter.make(Policy("20/minute; 5/3s", name='a "b" \\ c'))
    seen = made.get()
    assert list(seen.items("RateLimit-Policy")) == ['a "b" \\ c-1', 'a "b" \\ c-2']
    assert list(seen.items("RateLimit")) == ['a "b" \\ c-2']
