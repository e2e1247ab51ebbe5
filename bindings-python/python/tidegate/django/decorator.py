"""The decorators of views."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.views import View

from .._shown import shown
from ..errors import ConfigError, StoreError
from ..web.admission import Admission, admit, withdraw
from ..web.functions import name_of, qualified_name
from ..web.keys import UnusableKey
from ..web.layers import LIMITS, check_is_function
from ..web.limit import PolicyOption
from ..web.options import LimitOptions
from ..web.steps import Steps, run_steps, run_steps_async
from .layer import ViewLimit, django_request, find_request, is_enabled, is_rest_view, limits_of, place_of
from .middleware import answer_of, refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

MIDDLEWARE = "tidegate.django.TidegateMiddleware"


class FunctionCall:
    """A call of a view, or of a function that a view calls."""

    def __init__(
        self, limited: Any, function: Any, limits: Sequence[ViewLimit | None], args: Any, kwargs: Mapping[str, Any]
    ) -> None:
        self.function, self.limits, self.instance = function, limits, _instance_of(function, args)
        self.request = find_request((*args, *kwargs.values()), self.instance)
        http: Any = django_request(self.request)
        self.http, state = http, None if http is None else limits_of(http)
        if state is None and is_enabled():
            raise ConfigError(
                f"{qualified_name(function)} has a limit that is not enforced: put '{MIDDLEWARE}' into MIDDLEWARE"
                if self.request is not None
                else f"{qualified_name(function)} has a limit and was called without a request: use @limit for views, "
                "and for functions that get the request of their view. Use @limiter.limit of a Limiter for any other function"
            )
        self.state: Any = state
        # True if there is something to check.
        self.is_limited = state is not None and state.layer.enabled and any(one not in state.checked for one in limits)
        # `_deferred`: the check waits for authentication. `_has_run`: the check has run.
        self._deferred = self._has_run = False
        if self.is_limited:
            method = self._method_name = getattr(function, "__name__", "")
            # A view of Django REST framework authenticates in its `dispatch`.
            self.rest_view = _rest_view(self.request, self.instance)
            self.on_event_loop = method == "dispatch" and getattr(self.instance, "view_is_async", False)
            # True if Django takes the response of this function as that of the view.
            match = http.resolver_match
            self._is_view = (match is not None and match.func is limited) or (
                isinstance(self.instance, View) and method in ("dispatch", *self.instance.http_method_names)
            )

    def _placed(self) -> list[tuple[ViewLimit | None, str]]:
        """Returns the limits and their places. A class adds the limits of the method to be called."""
        instance, name = self.instance, self._method_name
        place = place_of(self.function, self.http) if instance is None else qualified_name(type(instance))
        if instance is None or name != "dispatch":
            return [(one, place if instance is None else f"{place}.{name}") for one in self.limits]
        handler_name = (self.http.method or "").lower()
        handler = getattr(instance, handler_name, None)
        called = f"{place}.{getattr(handler, '__name__', handler_name)}"
        return [*((one, place) for one in self.limits), *((one, called) for one in getattr(handler, LIMITS, ()))]

    def check(self) -> Any:
        """Checks the limits. Returns the response of a denied view, or raises it inside a view."""
        return None if self._waits_for_authentication() else self.check_now(self.request)

    def check_now(self, request: Any) -> Any:
        """Checks the limits now, when authentication has run."""
        self._has_run = True
        return run_steps(self._check(request, on_loop=False), self.state.layer.limiter)

    async def check_async(self) -> Any:
        """Checks on an event loop."""
        if self._waits_for_authentication():
            return None
        return await run_steps_async(self._check(self.request, on_loop=True), self.state.layer.async_limiter)

    def _check(self, request: Any, on_loop: bool) -> Steps[Any]:
        try:
            admission = yield from self._admit(request)
        except (StoreError, UnusableKey) as error:
            raise self._refusal(error) from error
        if admission is None or admission.decision:
            return None
        denied = self._refusal(admission, (yield from answer_of(admission, request, on_loop)))
        if self._is_view and self.rest_view is None:
            return denied.response
        # A decorator or a view has called this function, and may expect a result of any kind.
        raise denied

    def _admit(self, request: Any) -> Steps[Admission | None]:
        """Checks the limits that are left to check, together with those of the application."""
        state, layer, exempt = self.state, self.state.layer, None in self.limits
        if state.shared is not None:
            # The default was charged, because a decorator hides this function. A limit of the view replaces it.
            shared, state.shared = state.shared, None
            state.admissions.remove(shared)
            self.http.rate_limit = None
            yield from withdraw([shared])
            state.pending = layer._application
            layer._remember(state.view, self.http.method, () if exempt else None)
        placed = self._placed()
        left = [(one, place) for one, place in placed if one is not None and one not in state.checked]
        state.checked.update(one for one, _ in placed)
        pending, state.pending = state.pending, ()
        bounds = () if exempt else (*(layer.bound(one, place) for one, place in left if one.enabled), *pending)
        admission = (yield from admit(bounds, request, self.http.method)) if bounds else None
        if admission is not None:
            state.add(self.http, admission)
        return admission

    def _refusal(self, cause: Any, given: Any = None) -> Any:
        if self.rest_view is None:
            return refused(self.http, cause, given)
        from .rest_framework import rest_refused

        return rest_refused(self.rest_view, cause, given)

    def _waits_for_authentication(self) -> bool:
        if self.rest_view is None or self._method_name != "dispatch":
            return False
        from .rest_framework import check_after_authentication

        check_after_authentication(self.rest_view, self.check_now)
        self._deferred = True
        return True

    def verify(self, response: Any) -> None:
        """Raises if the view has answered without the check that waited for its authentication."""
        if self._deferred and not self._has_run and not getattr(response, "exception", False):
            raise ConfigError(
                f"the limit of {qualified_name(type(self.instance))} was not checked: its `initial` has to call "
                "`super().initial(…)`, or `check_throttles` itself"
            )


def _instance_of(function: Any, args: Any) -> Any:
    """Returns the view with this method. `method_decorator` decorates the bound method of each request."""
    if isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None) if inspect.ismethod(function) else next(iter(args), None)
    return owner if isinstance(owner, View) else None


def _rest_view(request: Any, instance: Any) -> Any:
    """Returns the view of Django REST framework that serves the request, or None outside of one."""
    if is_rest_view(instance):
        return instance
    if isinstance(request, HttpRequest):
        return None
    return (getattr(request, "parser_context", None) or {}).get("view")


Limited = TypeVar("Limited", bound=Any)


def limit(policy: PolicyOption, **options: Unpack[LimitOptions]) -> Callable[[Limited], Limited]:
    """A decorator for views, async views, class views and their methods, also through `method_decorator`, and for
    views, viewsets and actions of Django REST framework. It needs the middleware.

    policy: a name, a notation, a Policy, several of them, or a function of the request that returns these or None.
    The options are key, cost, skip, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method and
    enabled.

    You can also limit a function that a view calls with its request. The limit is checked there. A notation counts for
    its place: "module.view", "module.Class" or "module.Class.method". The place of an inner function has its route
    behind the name, as in "module.make.<locals>.view login/".
    """
    view_limit = ViewLimit(policy, options)

    def decorate(*views: Any, **more: Any) -> Any:
        if len(views) != 1 or more or isinstance(views[0], HttpRequest):
            name = name_of(policy) if callable(policy) else repr(policy)
            raise ConfigError(
                f"limit({name}) is a decorator of views, and it stands where a view belongs: a limit alone has no "
                'policy, write @limit("5/minute") above the view'
            )
        _check_decorated(views[0], "limit")
        return with_limits(views[0], [view_limit, *getattr(views[0], LIMITS, ())])

    return decorate


def exempt(view: Limited) -> Limited:
    """A decorator for views without any limit."""
    _check_decorated(view, "exempt")
    return with_limits(view, [None])


def _check_decorated(view: Any, decorator: str) -> None:
    check_is_function(view, decorator)
    if not callable(view):
        raise ConfigError(f"@{decorator} must stand above a view or a class view, not {shown(view)}")
    if inspect.isclass(view) and not hasattr(view, "dispatch") and "__call__" not in vars(view):
        raise ConfigError(
            f"@{decorator} must stand above a class view, and {qualified_name(view)} is not a django.views.View: "
            "put it above the function that serves requests"
        )


def with_limits(view: Limited, limits: list[ViewLimit | None]) -> Limited:
    """Returns the view. It checks its limits when it runs."""
    if inspect.isclass(view):
        method = "dispatch" if hasattr(view, "dispatch") else "__call__"
        setattr(view, method, with_limits(getattr(view, method), limits))
        setattr(view, LIMITS, limits)
        return view
    limited: Any
    if iscoroutinefunction(view) or iscoroutinefunction(type(view).__call__):

        @functools.wraps(view)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            return await _call_async(FunctionCall(limited, view, limits, args, kwargs), view, args, kwargs)

    else:

        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            call = FunctionCall(limited, view, limits, args, kwargs)
            if not call.is_limited:
                return view(*args, **kwargs)
            if call.on_event_loop:
                return _call_async(call, view, args, kwargs)
            answer = call.check()
            if answer is None:
                answer = view(*args, **kwargs)
                call.verify(answer)
            return answer

    setattr(limited, LIMITS, limits)
    return limited  # type: ignore[no-any-return]


async def _call_async(call: FunctionCall, function: Any, args: Any, kwargs: Any) -> Any:
    """Runs an async view, or the `dispatch` of a class with async methods, which is no coroutine function itself."""
    answer = await call.check_async() if call.is_limited else None
    if answer is None:
        answer = function(*args, **kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
    return answer
