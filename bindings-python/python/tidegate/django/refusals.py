"""How a Django project answers a request that was refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver

from .._tidegate import Decision, status
from ..errors import KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission
from ..web.keys import UnusableKey
from ..web.refusal import Refusal


class RequestDenied(RateLimited):
    """A request was denied; `decision` says why. The middleware answers, unless `process_exception` of another does."""

    response: HttpResponseBase

    def __init__(self, decision: Decision, response: HttpResponseBase | None = None) -> None:
        super().__init__(decision)
        if response is not None:
            self.response = response


class RequestUnchecked(StoreError):
    """The store did not answer, and `on_store_error` is "raise". The middleware answers 503, unless another does."""

    response: HttpResponseBase

    def __init__(self, message: str, code: str = "store_unavailable", response: HttpResponseBase | None = None) -> None:
        super().__init__(message, code)
        if response is not None:
            self.response = response


class RequestKeyInvalid(KeyInvalid):
    """The client of a request made its key unusable. The middleware answers 400, unless another does."""

    response: HttpResponseBase


def denied(request: HttpRequest, admission: Admission, given: HttpResponseBase | None = None) -> RequestDenied:
    """The exception for a request that was denied, with its response: what `on_denied` gave, or the project's."""
    error = RequestDenied(admission.decision)
    error.response = _response(request, Refusal(admission), error) if given is None else given
    return error


def unchecked(request: HttpRequest, cause: StoreError | UnusableKey) -> RequestUnchecked | RequestKeyInvalid:
    """The exception for a request that could not be checked, with its response."""
    if isinstance(cause, UnusableKey):
        invalid = RequestKeyInvalid(cause.message)
        invalid.response = _response(request, Refusal(cause), invalid)
        return invalid
    error = RequestUnchecked(cause.message, cause.code)
    error.response = _response(request, Refusal.without_store(cause), error)
    return error


def _response(request: HttpRequest, refusal: Refusal, error: Exception) -> HttpResponseBase:
    """What the project's `handler429`, `handler503` or `handler400` answers, or the problem."""
    handler = _handler(request, refusal.status)
    if handler is not None:
        return _as_refusal(handler(request, exception=error), refusal.status)
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.fields))


def _handler(request: HttpRequest, status: int) -> Callable[..., Any] | None:
    module = get_resolver(getattr(request, "urlconf", None)).urlconf_module
    given = getattr(module, f"handler{status}", None)
    return None if given is None else get_callable(given)


def _as_refusal(response: Any, status: int) -> Any:
    """A response that the project has made. Only one that was given a status has it as an attribute of its own."""
    if isinstance(response, HttpResponseBase) and response.status_code == 200 and "status_code" not in vars(response):
        response.status_code = status
    return response


def answer_of(on_denied: Any, request: Any, decision: Decision) -> Any:
    """What `on_denied` answers."""
    given = None if on_denied is None else on_denied(request, decision)
    return _as_refusal(waited_for(given) if inspect.isawaitable(given) else given, status(decision))


def waited_for(given: Any) -> Any:
    """Waits for an awaitable on a thread."""
    return async_to_sync(_awaited)(given)


async def awaited_answer(on_denied: Any, request: Any, decision: Decision) -> Any:
    """Answers a refusal on an event loop."""
    given = None if on_denied is None else on_denied(request, decision)
    return _as_refusal(await given if inspect.isawaitable(given) else given, status(decision))


async def _awaited(given: Any) -> Any:
    return await given
