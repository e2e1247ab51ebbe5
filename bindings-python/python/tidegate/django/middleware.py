"""The middleware, and the answers of a project to refused requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver

from .._tidegate import Decision, status
from ..errors import KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission, admit, end_work, refund
from ..web.keys import UnusableKey
from ..web.limit import BoundLimit
from ..web.refusal import Refusal
from ..web.steps import Steps, awaited, run_steps, run_steps_async
from .layer import NAME, DjangoLayer, RequestLimits, limits_of


class RequestDenied(RateLimited):
    """A request was denied. `decision` has the reason. The middleware answers, unless another one does."""

    def __init__(self, decision: Decision, response: HttpResponseBase | None = None) -> None:
        super().__init__(decision)
        self.response = response


class RequestUnchecked(StoreError):
    """The store did not answer, and `on_store_error` is "raise". The middleware answers 503, unless another does."""

    def __init__(self, message: str, code: str = "store_unavailable", response: HttpResponseBase | None = None) -> None:
        super().__init__(message, code)
        self.response = response


class RequestKeyInvalid(KeyInvalid):
    """The client of a request made its key unusable. The middleware answers 400, unless another does."""

    response: HttpResponseBase | None = None


def refused(
    request: HttpRequest, cause: Admission | StoreError | KeyInvalid, given: HttpResponseBase | None = None
) -> RequestDenied | RequestUnchecked | RequestKeyInvalid:
    """Returns the exception for a refused request, with its response: that of `on_denied`, or the project's."""
    refusal = Refusal(cause)
    error: Any = refusal.one_of(RequestDenied, RequestUnchecked, RequestKeyInvalid)(*refusal.arguments)
    error.response = _response(request, refusal, error) if given is None else given
    return error  # type: ignore[no-any-return]


def _response(request: HttpRequest, refusal: Refusal, error: Exception) -> HttpResponseBase:
    """Returns the answer of the project's `handler429`, `handler503` or `handler400`, or the problem."""
    module = get_resolver(getattr(request, "urlconf", None)).urlconf_module
    handler = getattr(module, f"handler{refusal.status}", None)
    if handler is not None:
        return _as_refusal(get_callable(handler)(request, exception=error), refusal.status)
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.fields))


def _as_refusal(response: Any, status: int) -> Any:
    """Gives a response of the project the status of the refusal, unless it sets one: then that is in its `vars`."""
    if isinstance(response, HttpResponseBase) and response.status_code == 200 and "status_code" not in vars(response):
        response.status_code = status
    return response


def answer_of(admission: Admission, request: Any, on_loop: bool) -> Steps[Any]:
    """Returns the answer of `on_denied` to a denied request, on an event loop or on a thread."""
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


class TidegateMiddleware(DjangoLayer):
    """Checks the limits that are not written at views, and answers refused requests, on threads and on event loops.

    `tidegate.django` lists the settings. Put it into MIDDLEWARE below middleware that adds to every response, such as
    CORS headers, and above middleware that may answer by itself.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__()
        self.get_response = get_response
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)
        self.process_view = self._process_view_async if self._async else self._process_view

    def __call__(self, request: HttpRequest) -> Any:
        state = RequestLimits(self)
        setattr(request, NAME, state)
        request.rate_limit = None
        if not self.enabled:
            return self.get_response(request)
        self._refresh()
        return self._run(self._serve(request, state))

    def _run(self, steps: Steps[Any]) -> Any:
        return run_steps_async(steps, self.async_limiter) if self._async else run_steps(steps, self.limiter)

    def _serve(self, request: HttpRequest, state: RequestLimits) -> Steps[Any]:
        try:
            response = self.get_response(request)
            if self._async:
                response = yield "wait", response
            if state.pending:
                # The request has reached no view, or no limit of its view.
                limits, state.pending = state.pending, ()
                if (refusal := (yield from self._check(request, limits))) is not None:
                    response.close()
                    response = refusal
            if state.admissions:
                follow_up = self._follow_up(state, request, response)
                if self._async:
                    yield from follow_up
                else:
                    run_steps(follow_up, self.limiter, waited_for)
        except BaseException:
            state.release()
            raise
        return response

    def _process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> Any:
        """Checks the limits that stand before the view. A view with its own limits checks them together with these."""
        state, limits = limits_of(request), None
        if state is not None and self.enabled:
            state.view = view
            limits = self.shared_limits(view, request)
            if limits is not None:
                state.pending = ()
        return self._run(self._check(request, limits or ()))

    async def _process_view_async(self, *given: Any) -> Any:
        return await self._process_view(*given)

    def _check(self, request: HttpRequest, limits: tuple[BoundLimit, ...]) -> Steps[HttpResponseBase | None]:
        """Checks limits that are not written at a view. Returns the response of a request that was refused."""
        state = limits_of(request)
        if not limits or state is None:
            return None
        try:
            admission = yield from admit(limits, request, request.method)
        except (StoreError, UnusableKey) as error:
            return (yield from self._refused(request, error))
        if admission is None:
            return None
        state.add(request, admission)
        state.shared = admission
        if admission.decision:
            return None
        return (yield from self._refused(request, admission, (yield from answer_of(admission, request, self._async))))

    def _refused(self, *given: Any) -> Steps[HttpResponseBase]:
        """Returns the response of a refused request. It never runs on an event loop, as it may call the project."""
        error = yield from awaited(sync_to_async(refused)(*given) if self._async else refused(*given))
        response: HttpResponseBase = error.response
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Answers an exception that a limit of a view has raised."""
        if isinstance(exception, (RequestDenied, RequestKeyInvalid, RequestUnchecked)):
            return exception.response
        return None

    def _follow_up(self, state: RequestLimits, request: HttpRequest, response: Any) -> Steps[None]:
        """Does the work that is left when the view has answered."""
        admissions = state.admissions
        yield from refund(admissions, request, response)
        # The fields of a denial do not replace those of the project's own answer.
        last = next((one for one in admissions if not one.decision), admissions[-1])
        for name, value in last.bound.headers.text(*(one for admission in admissions for one in admission.announced)):
            if last.decision or name not in response.headers:
                response.headers[name] = value
        if not any(admission.holds or admission.settles for admission in admissions):
            return
        if not getattr(response, "streaming", False):
            yield from end_work(admissions, request, response)
        else:
            # A stream ends with its last byte, or when its reader leaves. Django closes it on a thread.
            response._resource_closers.append(
                lambda: run_steps(end_work(admissions, request, response), self.limiter, waited_for)
            )
