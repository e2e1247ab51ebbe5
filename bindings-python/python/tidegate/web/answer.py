"""The answer to a refused request."""

from __future__ import annotations

from .._tidegate import problem, status
from .admission import Ticket


class Answer:
    """The answer to a refused request, for frameworks to write."""

    __slots__ = ("body", "fields", "status")

    def __init__(self, ticket: Ticket) -> None:
        self.status = status(ticket.decision)
        self.body = problem(ticket.decision).encode()
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            # Nobody else must be told that it was too much.
            ("Cache-Control", "no-store"),
        ]
