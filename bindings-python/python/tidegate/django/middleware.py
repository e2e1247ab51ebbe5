"""The middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..errors import StoreError
from ..web.admission import admit, end_work, refund
from ..web.bound_limit import BoundLimit
from ..web.keys import UnusableKey
from ..web.steps import Steps, awaited, run_steps, run_steps_async
from .layer import NAME, DjangoLayer, RequestLimits, limits_of
from .refusals import (
    RequestDenied,
    RequestKeyInvalid,
    RequestUnchecked,
    answer_of,
    awaited_answer,
    denied,
    unchecked,
    waited_for,
)


class TidegateMiddleware(DjangoLayer):
    """Checks the limits that are not written at views, and answers what was refused, on threads and on event loops.

    `tidegate.django` lists the settings. Its place in MIDDLEWARE: below what adds to every response, such
    as CORS headers, and above what may answer by itself.
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
        if self._async:
            return self._call_async(request, state)
        try:
            response = self.get_response(request)
            if state.pending:
                response = run_steps(self._late_steps(request, state, response), self.limiter)
            if state.admissions:
                run_steps(self._follow_up(state, request, response), self.limiter, waited_for)
        except BaseException:
            state.release()
            raise
        return response

    async def _call_async(self, request: HttpRequest, state: RequestLimits) -> Any:
        try:
            response = await self.get_response(request)
            if state.pending:
                response = await run_steps_async(self._late_steps(request, state, response), self.async_limiter)
            if state.admissions:
                await run_steps_async(self._follow_up(state, request, response), self.async_limiter)
        except BaseException:
            state.release()
            raise
        return response

    def _shared_limits(self, request: HttpRequest, view: Any) -> tuple[BoundLimit, ...]:
        """The limits to check before the view. A view with limits of its own checks them with the application's."""
        state = limits_of(request)
        if state is None or not self.enabled:
            return ()
        state.route = (view, request.method)
        limits = self.shared_limits(view, request)
        if limits is None:
            return ()
        state.pending = ()
        return limits

    def _process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        limits = self._shared_limits(request, view)
        return run_steps(self._steps(request, limits), self.limiter) if limits else None

    async def _process_view_async(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        limits = self._shared_limits(request, view)
        return await run_steps_async(self._steps(request, limits), self.async_limiter) if limits else None

    def _steps(self, request: HttpRequest, limits: tuple[BoundLimit, ...]) -> Steps[HttpResponseBase | None]:
        """Checks limits that are not written at a view. Returns the response of a request that was refused."""
        try:
            admission = yield from admit(limits, request, request.method)
        except (StoreError, UnusableKey) as error:
            return (yield from self._on_thread(unchecked, request, error)).response
        state = limits_of(request)
        if admission is None or state is None:
            return None
        state.add(request, admission)
        state.shared = admission
        if not admission.denied:
            return None
        answer = awaited_answer if self._async else answer_of
        given = yield from awaited(answer(admission.bound.on_denied, request, admission.decision))
        refused = yield from self._on_thread(denied, request, admission, given)
        return refused.response

    def _on_thread(self, function: Callable[..., Any], *given: Any) -> Steps[Any]:
        """Calls what may run code of the project: never on an event loop."""
        return awaited((sync_to_async(function) if self._async else function)(*given))

    def _late_steps(self, request: HttpRequest, state: RequestLimits, response: Any) -> Steps[Any]:
        """Checks the application's limit for a request that has reached no view, or no limit of its view."""
        limits, state.pending = state.pending, ()
        refused = yield from self._steps(request, limits)
        if refused is None:
            return response
        response.close()
        return refused

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Answers what a limit of a view has raised."""
        if isinstance(exception, (RequestDenied, RequestKeyInvalid, RequestUnchecked)):
            return getattr(exception, "response", None)
        return None

    def _follow_up(self, state: RequestLimits, request: HttpRequest, response: Any) -> Steps[None]:
        """What is left to do when the view has answered."""
        admissions = state.admissions
        for admission in admissions:
            if admission.refunds:
                yield from refund(admission, request, response)
        # Those of a denial stand behind what the project's own answer says.
        last = next((one for one in admissions if one.denied), admissions[-1])
        for name, value in last.bound.headers.text(*(one for admission in admissions for one in admission.announced)):
            if not (last.denied and name in response.headers):
                response.headers[name] = value
        if not any(admission.holds or admission.settles for admission in admissions):
            return
        if getattr(response, "streaming", False):
            # A stream ends with its last byte, or when its reader leaves; Django closes it on a thread.
            response._resource_closers.append(
                lambda: run_steps(end_work(admissions, request, response), self.limiter, waited_for)
            )
            return
        yield from end_work(admissions, request, response)
