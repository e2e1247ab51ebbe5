"""How a Django project answers a request that was refused."""

from __future__ import annotations

import inspect
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver

from .._tidegate import Decision, status
from ..errors import KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission
from ..web.refusal import Refusal
from ..web.steps import Steps


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


def refused(
    request: HttpRequest, cause: Admission | StoreError | KeyInvalid, given: HttpResponseBase | None = None
) -> RequestDenied | RequestUnchecked | RequestKeyInvalid:
    """The exception for a refused request, with its response: what `on_denied` gave, or the project's."""
    error: RequestDenied | RequestUnchecked | RequestKeyInvalid
    if isinstance(cause, Admission):
        error = RequestDenied(cause.decision)
    else:
        kind = RequestUnchecked if isinstance(cause, StoreError) else RequestKeyInvalid
        error = kind(cause.message, cause.code)
    error.response = _response(request, Refusal(cause), error) if given is None else given
    return error


def _response(request: HttpRequest, refusal: Refusal, error: Exception) -> HttpResponseBase:
    """What the project's `handler429`, `handler503` or `handler400` answers, or the problem."""
    module = get_resolver(getattr(request, "urlconf", None)).urlconf_module
    handler = getattr(module, f"handler{refusal.status}", None)
    if handler is not None:
        return _as_refusal(get_callable(handler)(request, exception=error), refusal.status)
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.fields))


def _as_refusal(response: Any, status: int) -> Any:
    """A response that the project has made. Only one that was given a status has it as an attribute of its own."""
    if isinstance(response, HttpResponseBase) and response.status_code == 200 and "status_code" not in vars(response):
        response.status_code = status
    return response


def answer_of(admission: Admission, request: Any, on_loop: bool) -> Steps[Any]:
    """What `on_denied` answers to a denied request, on an event loop or on a thread."""
    on_denied = admission.bound.on_denied
    given = None if on_denied is None else on_denied(request, admission.decision)
    if inspect.isawaitable(given):
        given = (yield "wait", given) if on_loop else waited_for(given)
    return _as_refusal(given, status(admission.decision))


def waited_for(given: Any) -> Any:
    """Waits for an awaitable on a thread."""

    async def awaited() -> Any:
        return await given

    return async_to_sync(awaited)()
