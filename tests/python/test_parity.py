"""The blocking limiter, the async limiter and the stubs have the same calls, and every public name is exported."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import tidegate
from tidegate import AsyncLimiter, Limiter

# The calls that both limiters have.
CONTRACT = {
    "acquire", "block", "charge", "check", "check_all", "clear", "clear_all", "close", "from_file", "hold", "journal",
    "limit", "observe", "override", "overrides", "peek", "ping", "refund", "reload", "settle", "stats", "unblock",
}  # fmt: skip
# Each makes the other.
OWN = {Limiter: {"to_async"}, AsyncLimiter: {"to_blocking"}}
# These need no store, so there is nothing to await.
NOT_AWAITED = {"from_file", "limit", "policy", "set_rollout", "counters", "stats", "waiting"}
STUB = ast.parse((Path(tidegate.__file__).with_name("_tidegate.pyi")).read_text())


def calls(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def stub(kind: str) -> dict[str, ast.FunctionDef]:
    body = next(node.body for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == kind)
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def test_both_have_the_calls_of_the_contract_and_the_same_others() -> None:
    shared = calls(Limiter) - OWN[Limiter]
    assert shared == calls(AsyncLimiter) - OWN[AsyncLimiter]
    assert shared >= CONTRACT
    assert shared - CONTRACT == {"policy", "set_rollout", "counters", "waiting"}


def test_both_take_the_same_arguments() -> None:
    for name in [*sorted(calls(Limiter) & calls(AsyncLimiter)), "__new__"]:
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (Limiter, AsyncLimiter))
        if name != "__new__":
            assert str(ours) == str(theirs), name
        ours, theirs = (inspect.signature(kind) for kind in (Limiter, AsyncLimiter))
        assert str(ours) == str(theirs)


def test_the_stubs_of_both_differ_only_in_awaiting() -> None:
    blocking, awaitable = stub("Limiter"), stub("AsyncLimiter")
    for name in calls(Limiter) & calls(AsyncLimiter) | {"__new__"}:
        assert ast.unparse(blocking[name].args) == ast.unparse(awaitable[name].args), name
        ours, theirs = blocking[name].returns, awaitable[name].returns
        assert ours is not None and theirs is not None
        expected = ast.unparse(ours)
        if name == "hold":
            expected = "Holding"
        elif name in NOT_AWAITED | {"__new__"}:
            expected = re.sub(r"^Limiter\b", "AsyncLimiter", expected)
        else:
            expected = f"Coroutine[Any, Any, {expected}]"
        assert ast.unparse(theirs) == expected, name


def test_all_names_of_the_contract_are_exported() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    first_lines = (
        "Limiter AsyncLimiter Policy Limit Decision ManualClock TidegateError PolicyError StoreError RateLimited"
    )
    assert set(first_lines.split()) <= set(tidegate.__all__)
    fields = {
        "allowed", "policy", "key", "cost", "granted", "limit", "remaining", "retry_after", "next_after", "reset_after",
        "reset_at", "delay", "limits", "source", "shadow", "unavailable", "abnormal", "overridden", "learned",
        "decisions",
    }  # fmt: skip
    assert fields == {name for name in vars(tidegate.Decision) if not name.startswith("_")} - {"as_dict"}
    parts = {
        "algorithm", "unit", "cost", "limit", "period", "remaining", "over", "retry_after", "next_after", "reset_after",
        "exceeded",
    }  # fmt: skip
    assert parts == {name for name in vars(tidegate.LimitState) if not name.startswith("_")} - {"as_dict"}
