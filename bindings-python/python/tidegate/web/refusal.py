"""The response to a refused request, for frameworks to write."""

from __future__ import annotations

from .._tidegate import problem, status
from .admission import Admission


class Refusal:
    """See the module."""

    __slots__ = ("body", "fields", "status")

    def __init__(self, admission: Admission) -> None:
        self.status = status(admission.decision)
        self.body = problem(admission.decision).encode()
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            # A cache must not repeat the refusal to another client.
            ("Cache-Control", "no-store"),
        ]
