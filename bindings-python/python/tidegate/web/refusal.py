"""The response to a refused request, for frameworks to write."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TypeVar

from .._tidegate import problem, problem_without_store, status
from ..errors import KeyInvalid, StoreError
from .admission import Admission

T = TypeVar("T")

# Most stores are back within a second, and there is no better guess.
STORE_WAIT = 1

# It does not repeat the client's input.
KEY_DETAIL = "The identity of this request's client is too long, or is not valid text."


# Code and reason that close a websocket without a client address. 1008 is "policy violation".
CLOSE_CODE, CLOSE_REASON = 1008, "key_invalid"


class Refusal:
    """Status, header fields and body of the refusal of a request that was denied, or could not be checked.

    A StoreError comes from a policy with "raise" as its `on_store_error`. A KeyInvalid is the client's fault.
    """

    def __init__(self, cause: Admission | StoreError | KeyInvalid) -> None:
        self.cause = cause
        # The arguments of the exceptions of refusals.
        self.arguments = (cause.decision,) if isinstance(cause, Admission) else (cause.message, cause.code)
        # The fields that announce the policies of a request that could not be checked.
        self.announced: list[tuple[str, str]] = []
        if isinstance(cause, Admission):
            self.status, text = status(cause.decision), problem(cause.decision)
        elif isinstance(cause, StoreError):
            headers, policies = cause._announced or (None, ())
            self.status, text = 503, problem_without_store(*policies)
            self.announced = headers.text(*policies) if headers else []
        else:
            said = {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": KEY_DETAIL}
            self.status, text = 400, json.dumps(said, separators=(",", ":"))
        # The code that closes a websocket. 1013 is "try again later".
        self.close_code = 1013 if isinstance(cause, StoreError) else CLOSE_CODE
        self.body = text.encode()
        # A cache must not repeat the refusal to another client.
        self.own_fields = [("Cache-Control", "no-store")]
        if isinstance(cause, StoreError):
            self.own_fields += [("Retry-After", str(STORE_WAIT)), *self.announced]
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            *self.own_fields,
        ]

    def one_of(self, denied: T, store_missing: T, key_invalid: T) -> T:
        """Returns the value for the cause of the refusal."""
        if isinstance(self.cause, Admission):
            return denied
        return store_missing if isinstance(self.cause, StoreError) else key_invalid

    @property
    def phrase(self) -> str:
        """The words for the status."""
        return HTTPStatus(self.status).phrase
