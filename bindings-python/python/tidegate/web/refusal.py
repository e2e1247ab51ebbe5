"""The response to a refused request, for frameworks to write."""

from __future__ import annotations

import json

from .._tidegate import problem, problem_without_store, status
from ..errors import KeyInvalid, StoreError
from .admission import Admission

# Most stores are back within a second, and there is no better guess.
STORE_WAIT = 1

# What the client sent is not repeated.
_KEY_PROBLEM = {
    "type": "about:blank",
    "title": "Bad Request",
    "status": 400,
    "detail": "What identifies the client of this request is too long, or no valid text.",
}


class Refusal:
    """Status, header fields and body of a refusal. A KeyInvalid is the client's fault."""

    __slots__ = ("announced", "body", "fields", "status")

    def __init__(self, denied: Admission | KeyInvalid) -> None:
        if isinstance(denied, KeyInvalid):
            self._write(400, json.dumps(_KEY_PROBLEM, separators=(",", ":")))
        else:
            self._write(status(denied.decision), problem(denied.decision))

    @classmethod
    def without_store(cls, error: StoreError) -> Refusal:
        """That of a request that could not be checked: the store is missing, and the policy says "raise"."""
        headers, policies = error._announced or (None, ())
        refusal = cls.__new__(cls)
        refusal._write(503, problem_without_store(*policies))
        refusal.announced = headers.text(*policies) if headers else []
        refusal.fields += [("Retry-After", str(STORE_WAIT)), *refusal.announced]
        return refusal

    def _write(self, status: int, text: str) -> None:
        self.status = status
        self.body = text.encode()
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            # A cache must not repeat the refusal to another client.
            ("Cache-Control", "no-store"),
        ]
        # The policies of a request that could not be checked.
        self.announced: list[tuple[str, str]] = []
