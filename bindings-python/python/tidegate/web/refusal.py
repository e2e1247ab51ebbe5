"""The response to a refused request, for frameworks to write."""

from __future__ import annotations

import json

from .._tidegate import problem, status
from .admission import Admission

# Most stores are back within a second, and there is no better guess.
STORE_WAIT = 1
_STORE_PROBLEM = {
    "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "title": "Request cannot be satisfied due to temporary server capacity constraints",
    "status": 503,
    "detail": f"Try again in {STORE_WAIT} second.",
}


class Refusal:
    """See the module. None: the store is missing, and the policy says "raise"."""

    __slots__ = ("body", "fields", "status")

    def __init__(self, admission: Admission | None) -> None:
        if admission is None:
            self.status, text = 503, json.dumps(_STORE_PROBLEM, separators=(",", ":"))
        else:
            self.status, text = status(admission.decision), problem(admission.decision)
        self.body = text.encode()
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            # A cache must not repeat the refusal to another client.
            ("Cache-Control", "no-store"),
        ]
        if admission is None:
            self.fields.append(("Retry-After", str(STORE_WAIT)))
