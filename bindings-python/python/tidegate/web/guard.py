"""A rule made ready for a limiter and a framework."""

from __future__ import annotations

from typing import Any

from .._tidegate import AsyncLimiter, Desk, Limiter, Policy
from .keys import Face, Key, Read
from .options import Rule


class Entry:
    """One policy of a rule, with its key and its cost. Only what the limiter knows says how it is asked."""

    __slots__ = ("cost", "holds", "key", "name", "policy", "prefix", "shapes")

    def __init__(self, policy: str | Policy, key: Read, name: str, cost: Any, known: Policy, scope: str) -> None:
        self.policy = policy
        self.key = key
        self.name = name
        self.cost = cost
        algorithms = {limit.algorithm for limit in known.limits}
        self.holds = "concurrency" in algorithms
        self.shapes = "leaky-bucket" in algorithms
        # A policy with a name is one limit wherever it is used. What was written in place is meant for this place: two
        # views with "5/minute" have five each.
        self.prefix = f"{scope} " if scope and known.name == str(known) else ""


class Guard:
    """A rule made ready for a limiter and a framework."""

    __slots__ = (
        "desk",
        "entries",
        "entry",
        "headers",
        "later",
        "methods",
        "on_denied",
        "refund_when",
        "refunds",
        "settle",
        "settles",
        "skip",
        "who",
    )

    def __init__(self, rule: Rule, limiter: Limiter | AsyncLimiter, face: Face) -> None:
        # A policy that makes no sense is told here, before the first request.
        self.entries = [
            Entry(policy, key.bind(face), repr(key), cost, limiter.policy(policy), rule.scope)
            for policy, key, cost in rule.policies
        ]
        self.headers, self.methods, self.skip = rule.headers, rule.methods, rule.skip
        self.on_denied, self.refund_when, self.settle = rule.on_denied, rule.refund_when, rule.settle
        self.refunds, self.settles = rule.refund_when is not None, rule.settle is not None
        # Whether there may be something to do when the answer is known, or over.
        self.later = self.refunds or self.settles or any(entry.holds for entry in self.entries)
        first = self.entry = self.entries[0]
        # One policy, one check, and nothing to call but the key, which is what nearly every request needs: then one
        # native call is all, and `who` is what it is given.
        key: Key = rule.policies[0][1]
        self.who = first.key if key.ip is None else face.peer
        self.desk: Desk | None = None
        detours = first.shapes or callable(first.cost) or self.skip is not None or self.methods is not None
        if len(self.entries) == 1 and key.plain and not (detours or self.later):
            self.desk = Desk(first.policy, first.prefix, first.cost, self.headers, key.ip)
