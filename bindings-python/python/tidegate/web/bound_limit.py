"""A declared limit, prepared for a limiter and for the requests of a framework."""

from __future__ import annotations

from typing import Any

from .._tidegate import AsyncLimiter, Limiter, Policy, PreparedCheck
from .declared_limit import DeclaredLimit
from .keys import Key, ReadRequest, RequestAdapter


class LimitEntry:
    """One policy of a limit, with its key and its cost."""

    __slots__ = ("cost", "holds", "key", "name", "policy", "prefix", "shapes")

    def __init__(
        self, policy: str | Policy, key: ReadRequest, name: str, cost: Any, resolved: Policy, scope: str
    ) -> None:
        self.policy = policy
        self.key = key
        self.name = name
        self.cost = cost
        algorithms = {limit.algorithm for limit in resolved.limits}
        self.holds = "concurrency" in algorithms
        self.shapes = "leaky-bucket" in algorithms
        # A policy with a name is one limit wherever it is used. A notation counts for the place where it is written:
        # two views with "5/minute" have five each.
        self.prefix = f"{scope} " if scope and resolved.name == str(resolved) else ""


class BoundLimit:
    """See the module."""

    __slots__ = (
        "entries",
        "entry",
        "has_follow_up",
        "headers",
        "identify",
        "methods",
        "on_denied",
        "prepared",
        "refund_when",
        "refunds",
        "settle",
        "settles",
        "skip",
    )

    def __init__(self, declared: DeclaredLimit, limiter: Limiter | AsyncLimiter, adapter: RequestAdapter) -> None:
        # `limiter.policy` raises for a policy that is wrong: before the first request.
        self.entries = [
            LimitEntry(policy, key.bind(adapter), repr(key), cost, limiter.policy(policy), declared.scope)
            for policy, key, cost in declared.policies
        ]
        self.headers, self.methods, self.skip = declared.headers, declared.methods, declared.skip
        self.on_denied, self.refund_when, self.settle = declared.on_denied, declared.refund_when, declared.settle
        self.refunds, self.settles = declared.refund_when is not None, declared.settle is not None
        # Whether there may be something to do after the view has answered.
        self.has_follow_up = self.refunds or self.settles or any(entry.holds for entry in self.entries)
        first = self.entry = self.entries[0]
        # One policy, a fixed cost, and no function but the key: what nearly every request needs. One native call does
        # all of it, from what `identify` reads of the request: the peer's address, or the key.
        key: Key = declared.policies[0][1]
        self.identify = first.key if key.ip is None else adapter.peer
        self.prepared: PreparedCheck | None = None
        needs_steps = (
            self.has_follow_up
            or first.shapes
            or callable(first.cost)
            or self.skip is not None
            or self.methods is not None
        )
        if len(self.entries) == 1 and key.plain and not needs_steps:
            self.prepared = PreparedCheck(first.policy, first.prefix, first.cost, self.headers, key.ip)
