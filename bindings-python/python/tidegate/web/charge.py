"""What one policy of a limit is charged for a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._tidegate import Decision
from .bound_limit import BoundLimit, LimitEntry


class Charge:
    """What one entry of a request consumes."""

    __slots__ = ("bound", "cost", "decision", "entries", "entry", "key", "meta", "returned")

    # What the limiter said; set when it was asked.
    decision: Decision

    def __init__(
        self,
        bound: BoundLimit,
        entries: Sequence[LimitEntry],
        entry: LimitEntry,
        key: str,
        cost: int,
        meta: Any = None,
    ) -> None:
        # Whether it was given back or settled.
        self.returned = False
        self.bound = bound
        self.entry = entry
        self.key = key
        self.cost = cost
        self.meta = meta
        # Those of its limit, of which its entry is one.
        self.entries = entries

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The policy, the key and the cost, and the metadata where there is some."""
        given = (self.entry.resolved.policy, self.key, self.cost)
        return given if self.meta is None else (*given, self.meta)

    @property
    def consumed(self) -> bool:
        """Whether there is something that can be given back."""
        return self.entry.resolved.rates and not self.returned and not self.decision.shadow
