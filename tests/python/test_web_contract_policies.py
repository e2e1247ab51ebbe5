"""Policies in every web layer: wrong ones, those chosen by request, the Decision for the view, metadata."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import ConfigError, CostError, Limiter, Policy, PolicyError, TidegateError
from tidegate.http import placed_key
from web_adapter import Adapter, LimitedApp

ADDRESS = "203.0.113.9"


def statuses(made: LimitedApp, count: int, **more: Any) -> list[int]:
    return [made.get(**more).status for _ in range(count)]


@pytest.mark.parametrize("wrong", ["5/minut", ["login", "5/minut"], [("5 per fortnight", None, 2)], "concurency 5"])
def test_a_wrong_notation_is_an_error_where_it_is_written(adapter: Adapter, wrong: Any) -> None:
    with pytest.raises(PolicyError) as raised:
        adapter.make(wrong, policies={"login": "5/minute"})
    assert raised.value.code == "policy_invalid"


@pytest.mark.parametrize("name", ["login2", "2fa", "v1.api-7", "50%"])
def test_a_name_may_have_digits(adapter: Adapter, name: str) -> None:
    assert statuses(adapter.make(name, policies={name: "1/minute"}), 2) == [200, 429]


def test_an_unknown_name_is_an_error_at_the_first_request_at_the_latest(adapter: Adapter) -> None:
    with pytest.raises(PolicyError, match="nope"):
        adapter.make("nope").get()


@pytest.mark.parametrize(("wrong", "right"), [("kee", "key"), ("costs", "cost"), ("on_deny", "on_denied")])
def test_an_option_that_does_not_exist_is_named_with_the_nearest_one(adapter: Adapter, wrong: str, right: str) -> None:
    with pytest.raises(TypeError, match=f"no option '{wrong}': did you mean '{right}'"):
        adapter.make("1/minute", **{wrong: 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ["GTE"]},
        {"methods": []},
        {"methods": "GET"},
        {"enabled": "no"},
        {"per_method": 1},
        {"meta": 7},
        {"key": 7},
        {"cost": 0},
        {"cost": -1},
        {"cost": "5"},
        {"cost": True},
        {"cost": 2**60},
        {"meta": "half \ud800"},
        {"meta": b"m" * 70_000},
        {"headers": "all"},
    ],
    ids=str,
)
def test_a_wrong_value_of_an_option_is_named_where_it_is_written(adapter: Adapter, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises((ConfigError, CostError), match=name):
        adapter.make("1/minute", **wrong)


def test_a_wrong_method_is_told_the_nearest_one(adapter: Adapter) -> None:
    with pytest.raises(ConfigError, match="did you mean 'GET'"):
        adapter.make("1/minute", methods=["GTE"])


def test_a_function_without_a_request_is_no_policy(adapter: Adapter) -> None:
    with pytest.raises(ConfigError, match="has no policy"):
        adapter.make(lambda: "5/minute")


def plans(adapter: Adapter) -> Any:
    """Returns a policy by request, which the header X-Plan chooses."""
    returned = {
        "name": "plan",
        "notation": "2/minute",
        "policy": Policy("3/minute", name="three"),
        "several": ["plan", ("5/minute", "key of the tuple", 2), ("5/hour", None, 1)],
        "none": None,
        "empty": [],
        "unknown": "gold",
        "wrong": "5/minut",
        "number": 7,
    }
    return lambda request: returned[adapter.header(request, "X-Plan") or "name"]


def test_the_policy_by_request(adapter: Adapter) -> None:
    limiter = Limiter(policies={"plan": "1/minute"})
    made = adapter.make(plans(adapter), limiter=limiter)
    assert statuses(made, 2) == [200, 429]
    assert limiter.peek("plan", ADDRESS).remaining == 0
    assert statuses(made, 3, headers={"X-Plan": "notation"}) == [200, 200, 429]
    assert limiter.peek("2/minute", ADDRESS).remaining == 2, "a notation counts for the place"
    assert statuses(made, 4, headers={"X-Plan": "policy"}) == [200, 200, 200, 429]
    for plan in ("none", "empty"):
        seen = made.get(headers={"X-Plan": plan})
        assert seen.status == 200 and "RateLimit" not in seen
    limiter.clear("plan", ADDRESS)
    seen = made.get(headers={"X-Plan": "several"})
    assert seen.status == 200
    assert {policy: item["r"] for policy, item in seen.items("RateLimit").items()} == {
        "plan": 0,
        "5/minute": 3,
        "5/hour": 4,
    }
    # All or nothing, so the denied requests charge no other policy.
    assert statuses(made, 2, headers={"X-Plan": "several"}) == [429, 429]
    limiter.clear("plan", ADDRESS)
    assert made.get(headers={"X-Plan": "several"}).items("RateLimit")["5/minute"]["r"] == 1


@pytest.mark.parametrize(("plan", "says"), [("unknown", "gold"), ("wrong", "minut"), ("number", "7")])
def test_what_is_no_policy_is_an_error_that_names_it_and_the_function(adapter: Adapter, plan: str, says: str) -> None:
    made = adapter.make(plans(adapter), policies={"plan": "1/minute"})
    with pytest.raises(TidegateError) as raised:
        made.get(headers={"X-Plan": plan})
        raise AssertionError("the request was admitted")
    assert says in str(raised.value) and "plans" in str(raised.value)


def test_the_policy_by_request_may_be_async(adapter: Adapter) -> None:
    async def by_request(request: Any) -> str:
        return "1/minute" if adapter.header(request, "X-Plan") is None else "2/minute"

    if not adapter.awaits:
        with pytest.raises(ConfigError, match="is async"):
            adapter.make(by_request).get()
        return
    made = adapter.make(by_request)
    assert statuses(made, 2) == [200, 429]
    assert statuses(made, 3, headers={"X-Plan": "two"}) == [200, 200, 429]


def test_the_policy_by_request_may_have_a_concurrency_limit(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})
    made = adapter.make(lambda request: "p", limiter=limiter)
    assert statuses(made, 2) == [200, 200]
    assert limiter.peek("p", ADDRESS).remaining == 1
    with limiter.hold("p", ADDRESS):
        assert made.get().status == 429


def test_a_limitless_variety_of_policies_by_request(adapter: Adapter) -> None:
    # The core keeps a thousand policies, and two adapters go beyond that.
    most = 1_200 if adapter.name in ("flask", "asgi") else 50
    counts = iter(range(1, most))
    made = adapter.make(lambda request: f"{next(counts)}/minute")
    for count in range(1, most):
        assert made.get()["X-RateLimit-Limit"] == str(count)


def test_the_decision_in_a_view(adapter: Adapter) -> None:
    seen: list[Any] = []

    def view(decision: Any) -> Any:
        seen.append(decision)
        return 200, b"ok"

    limiter = Limiter(policies={"p": "5/minute", "q": "9/minute", "c": "concurrency 1"})
    adapter.make("p", view=view, limiter=limiter).get()
    assert (seen[-1].policy, seen[-1].key, seen[-1].remaining) == ("p", ADDRESS, 4)
    adapter.make(["p", "q"], view=view, limiter=limiter).get()
    assert [(one.policy, one.remaining) for one in seen[-1].decisions] == [("p", 3), ("q", 8)]
    adapter.make(["p", "c", "q"], view=view, limiter=limiter).get()
    assert [(one.policy, one.remaining) for one in seen[-1].decisions] == [("p", 2), ("c", 0), ("q", 7)]
    assert seen[-1] and seen[-1].policy == "c", "the limit that binds"
    adapter.make("c", view=view, limiter=limiter).get()
    assert seen[-1].policy == "c"
    # With a function the layer does not use one prepared call.
    adapter.make("p", view=view, limiter=limiter, skip=lambda request: False).get()
    assert (seen[-1].policy, seen[-1].remaining) == ("p", 1)
    for nothing in ({"policy": lambda request: None}, {"policy": "p", "skip": lambda request: True}):
        adapter.make(**nothing, view=view, limiter=limiter).get()
        assert seen[-1] is None


def test_meta_says_in_the_journal_who_it_was(adapter: Adapter) -> None:
    limiter = Limiter(
        policies={
            "p": Policy("5/minute", journal=10),
            "q": Policy("5/minute", journal=10),
            "c": Policy("concurrency 1", journal=10),
        }
    )

    def journal(policy: str) -> list[str | None]:
        return [attempt.meta for attempt in limiter.journal(policy, ADDRESS)]

    def who(request: Any) -> str | None:
        return adapter.header(request, "X-Who")

    adapter.make("p", meta=who, limiter=limiter).get(headers={"X-Who": "alice"})
    adapter.make("p", meta="a text", limiter=limiter).get()
    adapter.make("p", meta=who, limiter=limiter).get()
    assert journal("p") == [None, "a text", "alice"]
    adapter.make(["p", "q"], meta=who, limiter=limiter).get(headers={"X-Who": "bob"})
    adapter.make("c", meta=who, limiter=limiter).get(headers={"X-Who": "carol"})
    assert (journal("p")[0], journal("q"), journal("c")) == ("bob", ["bob"], ["carol"])


def test_a_meta_function_returns_text(adapter: Adapter) -> None:
    made = adapter.make(Policy("5/minute", journal=1), meta=lambda request: {"user": 1})
    with pytest.raises(ConfigError, match="meta function"):
        made.get()


def test_per_method_is_a_budget_for_each_method(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "1/minute"})
    for policy in ("1/minute", "p"):
        made = adapter.make(policy, limiter=limiter, per_method=True)
        assert [made.get(method=method).status for method in ("GET", "POST", "GET", "POST")] == [200, 200, 429, 429]
    for method in ("GET", "POST"):
        assert limiter.peek("p", placed_key(None, ADDRESS, method)).remaining == 0


def test_a_limit_that_is_not_enabled_is_as_if_it_were_not_there(adapter: Adapter) -> None:
    made = adapter.make("1/minute", enabled=False)
    for _ in range(3):
        seen = made.get()
        assert seen.status == 200 and "RateLimit" not in seen
    assert statuses(adapter.make("1/minute", enabled=True), 2) == [200, 429]


def test_the_environment_disables_layers(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_ENABLED", "false")
    # The store is not there and would raise, so this shows that the layer does not ask it.
    made = adapter.make("1/minute", store="redis://127.0.0.1:1/0", on_store_error="raise")
    for _ in range(3):
        seen = made.get()
        assert seen.status == 200 and "RateLimit" not in seen
    monkeypatch.setenv("TIDEGATE_ENABLED", "true")
    assert statuses(adapter.make("1/minute"), 2) == [200, 429]
    monkeypatch.setenv("TIDEGATE_ENABLED", "nope")
    with pytest.raises(ConfigError, match="TIDEGATE_ENABLED"):
        adapter.make("1/minute").get()


def test_a_store_that_is_missing_is_a_503(adapter: Adapter) -> None:
    for policy in ("1/minute", ["1/minute", "2/minute"], "concurrency 1"):
        seen = adapter.make(policy, store="redis://127.0.0.1:1/0", on_store_error="raise").get()
        assert seen.status == 503
        assert seen["Content-Type"].startswith("application/problem+json")
        assert b"temporary-reduced-capacity" in seen.body
        assert seen["Retry-After"] == "1" and seen["Cache-Control"] == "no-store"
