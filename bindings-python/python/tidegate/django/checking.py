"""One call of a function that has limits, during a request."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest
from django.views import View

from ..errors import ConfigError, StoreError
from ..web.admission import Admission, admit, withdraw
from ..web.bound_limit import BoundLimit
from ..web.keys import UnusableKey
from ..web.steps import Steps, run_steps, run_steps_async
from .layer import LIMITS, ViewLimit, is_enabled, name_of, place_of
from .refusals import answer_of, awaited_answer, denied, unchecked
from .request_limits import RequestLimits, limits_of
from .requests import django_request, find_request, is_rest_view

MIDDLEWARE = "tidegate.django.TidegateMiddleware"


class FunctionCall:
    """A call of a view, or of a function that a view calls."""

    @classmethod
    def of(
        cls, limited: Any, function: Any, limits: Sequence[ViewLimit | None], args: Any, kwargs: Mapping[str, Any]
    ) -> FunctionCall | None:
        """The call, if it has limits to check."""
        instance = _instance_of(function, args)
        request = find_request((*args, *kwargs.values()), instance)
        if request is None:
            if not is_enabled():
                return None
            raise ConfigError(
                f"{name_of(function)} has a limit and was called without a request: @limit is for views, and for "
                "functions that get the request of their view; @limiter.limit of a Limiter is for any function"
            )
        http: HttpRequest = django_request(request)
        state = limits_of(http)
        if state is None:
            if not is_enabled():
                return None
            raise ConfigError(
                f"{name_of(function)} has a limit that is not enforced: put '{MIDDLEWARE}' into MIDDLEWARE"
            )
        if not state.layer.enabled or all(one in state.checked for one in limits):
            return None
        return cls(limited, function, limits, instance, request, http, state)

    def __init__(
        self,
        limited: Any,
        function: Any,
        limits: Sequence[ViewLimit | None],
        instance: Any,
        request: Any,
        http: HttpRequest,
        state: RequestLimits,
    ) -> None:
        self.function, self.limits, self.instance = function, limits, instance
        self.request, self.http, self.state = request, http, state
        # Whether the check waits for authentication, and whether it has run.
        self._deferred = self._has_run = False
        self._method_name = getattr(function, "__name__", "")
        # A view of Django REST framework authenticates in its `dispatch`.
        self.rest_view = _rest_view(request, instance)
        self.on_event_loop = self._method_name == "dispatch" and getattr(instance, "view_is_async", False)
        # Whether Django takes the response of this function for that of the view.
        match = http.resolver_match
        self._is_view = (match is not None and match.func is limited) or (
            isinstance(instance, View) and self._method_name in ("dispatch", *instance.http_method_names)
        )

    def _bind(self) -> tuple[BoundLimit, ...]:
        """The limits that are left to check, together with those of the application."""
        state, placed = self.state, self._placed()
        unchecked = [(one, place) for one, place in placed if one is not None and one not in state.checked]
        state.checked.update(one for one, _ in placed)
        pending, state.pending = state.pending, ()
        if None in self.limits:
            return ()
        return (*(state.layer.bound(one, place) for one, place in unchecked if one.enabled), *pending)

    def _placed(self) -> list[tuple[ViewLimit | None, str]]:
        """The limits and their places: of a class also those of the method that is about to be called."""
        if self.instance is None:
            place = place_of(self.function, self.http)
            return [(one, place) for one in self.limits]
        place, name = name_of(type(self.instance)), self._method_name
        if name != "dispatch":
            return [(one, f"{place}.{name}") for one in self.limits]
        placed = [(one, place) for one in self.limits]
        handler_name = (self.http.method or "").lower()
        handler = getattr(self.instance, handler_name, None)
        called = getattr(handler, "__name__", handler_name)
        return placed + [(one, f"{place}.{called}") for one in getattr(handler, LIMITS, ())]

    def _steps(self, request: Any) -> Steps[Admission | None]:
        state = self.state
        if state.shared is not None:
            # The default was charged, because a decorator hides this function: a limit of the view replaces it.
            shared, state.shared = state.shared, None
            state.admissions.remove(shared)
            self.http.rate_limit = None
            yield from withdraw(shared)
            state.pending = state.layer.application
            state.layer.remember(state.route, () if None in self.limits else None)
        bounds = self._bind()
        admission = (yield from admit(bounds, request, self.http.method)) if bounds else None
        if admission is not None:
            state.add(self.http, admission)
        return admission

    def check(self) -> Any:
        """Checks the limits. Returns the response of a view that was denied; raises it from within a view."""
        if self._waits_for_authentication():
            return None
        return self.check_now(self.request)

    def check_now(self, request: Any) -> Any:
        """The same, when authentication has run."""
        self._has_run = True
        try:
            admission = run_steps(self._steps(request), self.state.layer.limiter)
        except (StoreError, UnusableKey) as error:
            raise self._unchecked(error) from error
        if admission is None or not admission.denied:
            return None
        return self._refuse(admission, answer_of(admission.bound.on_denied, request, admission.decision))

    async def check_async(self) -> Any:
        """The same on an event loop."""
        if self._waits_for_authentication():
            return None
        try:
            admission = await run_steps_async(self._steps(self.request), self.state.layer.async_limiter)
        except (StoreError, UnusableKey) as error:
            raise self._unchecked(error) from error
        if admission is None or not admission.denied:
            return None
        given = await awaited_answer(admission.bound.on_denied, self.request, admission.decision)
        return self._refuse(admission, given)

    def _waits_for_authentication(self) -> bool:
        if self.rest_view is None or self._method_name != "dispatch":
            return False
        from .rest_refusals import check_after_authentication

        check_after_authentication(self.rest_view, self.check_now)
        self._deferred = True
        return True

    def verify(self, response: Any) -> None:
        """Raises when the view has answered without the check that waited for its authentication."""
        if self._deferred and not self._has_run and not getattr(response, "exception", False):
            raise ConfigError(
                f"the limit of {name_of(type(self.instance))} was not checked: its `initial` has to call "
                "`super().initial(…)`, or `check_throttles` itself"
            )

    def _unchecked(self, error: StoreError | UnusableKey) -> Exception:
        if self.rest_view is None:
            return unchecked(self.http, error)
        from .rest_refusals import rest_unchecked

        missing: Exception = rest_unchecked(self.rest_view, error)
        return missing

    def _refuse(self, admission: Admission, given: Any) -> Any:
        if self.rest_view is not None:
            from .rest_refusals import rest_denied

            raise rest_denied(self.rest_view, admission, given)
        error = denied(self.http, admission, given)
        if self._is_view:
            return error.response
        # A decorator or a view has called this function: what it returns may be of any kind.
        raise error


def _instance_of(function: Any, args: Any) -> Any:
    """The view whose method the function is. `method_decorator` decorates the bound method of each request."""
    if isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None) if inspect.ismethod(function) else next(iter(args), None)
    return owner if isinstance(owner, View) else None


def _rest_view(request: Any, instance: Any) -> Any:
    """The view of Django REST framework that serves the request; None outside of one."""
    if is_rest_view(instance):
        return instance
    if isinstance(request, HttpRequest):
        return None
    return (getattr(request, "parser_context", None) or {}).get("view")
