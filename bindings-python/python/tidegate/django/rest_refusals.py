"""How a view of Django REST framework refuses a request: by exceptions for its exception handler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rest_framework.exceptions import APIException, Throttled
from rest_framework.response import Response

from .._tidegate import Decision
from ..errors import StoreError
from ..web.admission import Admission
from ..web.keys import UnusableKey
from ..web.refusal import STORE_WAIT, Refusal


class RequestThrottled(Throttled):  # type: ignore[misc]
    """A request was denied by a limit; `decision` says why."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.retry_after)
        self.decision = decision


class StoreUnavailable(APIException):  # type: ignore[misc]
    """A request was refused with 503, because the store is missing. `decision` is None with "raise"."""

    status_code = 503
    default_detail = "Service temporarily unavailable, try again later."
    default_code = "service_unavailable"

    def __init__(self, decision: Decision | None = None) -> None:
        super().__init__()
        self.decision = decision
        # The exception handler makes Retry-After of it.
        self.wait = STORE_WAIT


class KeyUnusable(APIException):  # type: ignore[misc]
    """A request was refused with 400, because its client has made its key unusable."""

    status_code = 400
    default_detail = "What identifies the client of this request is too long, or no valid text."
    default_code = "key_invalid"


def check_after_authentication(view: Any, check: Callable[[Any], Any]) -> None:
    """Has a view check its limits before its throttles, when it has authenticated the request."""
    check_throttles = view.check_throttles

    def check_limits_and_throttles(request: Any) -> None:
        check(request)
        check_throttles(request)

    view.check_throttles = check_limits_and_throttles


def rest_denied(view: Any, admission: Admission, given: Any = None) -> APIException:
    """The exception for a request that was denied. The response is what `on_denied` gave, or the handler's."""
    refusal = Refusal(admission)
    decision = admission.decision
    error: APIException = StoreUnavailable(decision) if refusal.status == 503 else RequestThrottled(decision)
    _answer(view, error, refusal, given)
    return error


def rest_unchecked(view: Any, cause: StoreError | UnusableKey) -> APIException:
    """The exception for a request that could not be checked."""
    error: APIException
    if isinstance(cause, UnusableKey):
        error, refusal = KeyUnusable(), Refusal(cause)
    else:
        error, refusal = StoreUnavailable(), Refusal.without_store(cause)
    error.__cause__ = cause
    # Refusals have these too, and the view sends what its `headers` has.
    view.headers.update(refusal.announced)
    _answer(view, error, refusal)
    return error


def _answer(view: Any, refused: APIException, refusal: Refusal, given: Any = None) -> None:
    answer_refusals(view, lambda exc: refusal if exc is refused else None, given)


def answer_refusals(view: Any, refusal_of: Callable[[Any], Refusal | None], given: Any = None) -> None:
    """Has the view answer its refusal: what the default exception handler says becomes a problem (RFC 9457)."""
    handle_exception = view.handle_exception

    def handle(exc: Any) -> Any:
        refusal = refusal_of(exc)
        if refusal is None:
            return handle_exception(exc)
        if given is not None:
            return given
        response = handle_exception(exc)
        # The answer of a project's own handler stays as it is.
        if isinstance(response, Response) and response.data == {"detail": exc.detail}:
            response.data = {**json.loads(refusal.body), **response.data}
            response.headers.setdefault("Cache-Control", "no-store")
            if getattr(getattr(view.request, "accepted_renderer", None), "format", None) == "json":
                response.content_type = "application/problem+json"
        return response

    view.handle_exception = handle
