"""Limits for Django.

    # settings.py
    MIDDLEWARE = [..., "tidegate.django.TidegateMiddleware"]      # after the one that authenticates
    TIDEGATE = {"store": "redis://127.0.0.1:6379/0", "default": "100/minute"}

    # views.py
    from tidegate.django import limit

    @limit("5/minute")
    def login(request): ...

`TIDEGATE` has the options of a limiter, or a `limiter`; `default`, the policy of every view without a limit of its own;
and defaults for the options of all limits. Functions given as options get the request. `user()` reads `request.user`,
`claim()` the verified claims in `request.claims`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ._shown import shown
from ._tidegate import Limiter
from .errors import ConfigError
from .web.admission import Admission, admit, refund, settle
from .web.bound_limit import BoundLimit
from .web.declared_limit import DeclaredLimit, PolicyOption
from .web.environ import EnvironAdapter
from .web.exchange import ADAPTER
from .web.keys import Key, claim, client_ip, header, user
from .web.layers import LimitDecorator, RouteLimits
from .web.options import LimitOptions
from .web.refusal import Refusal
from .web.steps import Steps, run_steps, run_steps_async

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Key", "TidegateMiddleware", "claim", "client_ip", "exempt", "header", "limit", "user"]

View = TypeVar("View", bound=Any)

# The attribute in which a request carries its admission.
NAME = "tidegate"
# The attribute in which a view carries its limits: a list of _ViewLimit; None exempts the view.
LIMITS = "__tidegate__"
# How many views and methods are remembered: a client may make up methods, a server has few.
MAX_ROUTES = 10_000
# The longest method whose limits are kept.
MAX_METHOD = 32


class _DjangoAdapter(EnvironAdapter):
    def environ(self, request: HttpRequest) -> Mapping[str, Any]:
        meta: Mapping[str, Any] = request.META
        return meta

    def over_unix(self, request: HttpRequest) -> bool:
        # Over ASGI the environ is Django's own, and the scope says what the server said.
        scope = getattr(request, "scope", None)
        return super().over_unix(request) if scope is None else ADAPTER.over_unix(scope)

    def user(self, request: HttpRequest) -> object:
        return getattr(request, "user", None)

    def claims(self, request: HttpRequest) -> Mapping[str, Any] | None:
        return getattr(request, "claims", None)


def limit(policy: PolicyOption, **options: Unpack[LimitOptions]) -> Callable[[View], View]:
    """A decorator for views, async views and class views; also through `method_decorator`. It needs the middleware.

    The options are key, cost, skip, on_denied, headers, refund_when, settle and methods.
    """
    view_limit = _ViewLimit(policy, options)

    def decorate(view: View) -> View:
        if not callable(view):
            raise ConfigError(
                f"@limit is for views and class views, not for {shown(view)}: it stands above the view itself"
            )
        limited: View = _with_limits(view, [view_limit, *getattr(view, LIMITS, ())])
        return limited

    return LimitDecorator(policy, decorate)


def exempt(view: View) -> View:
    """A decorator for views that nothing limits."""
    exempted: View = _with_limits(view, [None])
    return exempted


class _ViewLimit:
    """A limit as it is written at a view. Options that are missing come from the settings, which are read later."""

    def __init__(self, policy: Any, options: LimitOptions) -> None:
        DeclaredLimit(policy, **options)
        self.policy, self.options = policy, options


def _with_limits(view: Any, limits: list[_ViewLimit | None]) -> Any:
    """The view; it raises when it runs and no middleware has checked its limits."""
    if inspect.isclass(view):
        setattr(view, LIMITS, limits)
        kind: Any = view
        kind.dispatch = _with_limits(kind.dispatch, limits)
        return kind

    def check(args: tuple[Any, ...]) -> None:
        request = next((one for one in args if isinstance(one, HttpRequest)), None)
        if request is not None and not hasattr(request, NAME):
            raise ConfigError(
                f"{_name_of(view)} has a limit that is not enforced: "
                "put 'tidegate.django.TidegateMiddleware' into MIDDLEWARE"
            )

    if iscoroutinefunction(view):

        @functools.wraps(view)
        async def enforced_async(*args: Any, **kwargs: Any) -> Any:
            check(args)
            return await view(*args, **kwargs)

        setattr(enforced_async, LIMITS, limits)
        return enforced_async

    @functools.wraps(view)
    def enforced(*args: Any, **kwargs: Any) -> Any:
        check(args)
        return view(*args, **kwargs)

    setattr(enforced, LIMITS, limits)
    return enforced


def _name_of(view: Any) -> str:
    return f"{getattr(view, '__module__', '')}.{getattr(view, '__qualname__', type(view).__name__)}"


class TidegateMiddleware(RouteLimits[Limiter, Any]):
    """Checks each request before its view is called, on threads and on event loops alike."""

    sync_capable = True
    async_capable = True
    _limiter_class = Limiter
    _adapter = _DjangoAdapter()

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        options = dict(getattr(settings, "TIDEGATE", {}))
        self.get_response = get_response
        default, application, store, limiter = (
            options.pop(name, None) for name in ("default", "application", "store", "limiter")
        )
        self._configure(limiter, store, options)
        self._declare_shared(default, application)
        self._async = iscoroutinefunction(get_response)
        self._async_limiter = self.limiter.to_async()
        self._limits_by_view: dict[Any, tuple[BoundLimit, ...]] = {}
        if self._async:
            markcoroutinefunction(self)
        self.process_view = self._process_view_async if self._async else self._process_view

    def __call__(self, request: HttpRequest) -> Any:
        setattr(request, NAME, None)
        if self._async:
            return self._call_async(request)
        try:
            response = self.get_response(request)
            if (admission := getattr(request, NAME)) is not None:
                run_steps(self._follow_up(admission, request, response), self.limiter)
        except BaseException:
            _release(request)
            raise
        return response

    async def _call_async(self, request: HttpRequest) -> Any:
        try:
            response = await self.get_response(request)
            if (admission := getattr(request, NAME)) is not None:
                await run_steps_async(self._follow_up(admission, request, response), self._async_limiter)
        except BaseException:
            _release(request)
            raise
        return response

    def _process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        limits = self._limits_of(view, request.method)
        admission = run_steps(admit(limits, request, request.method), self.limiter) if limits else None
        if admission is None:
            return None
        setattr(request, NAME, admission)
        if not admission.denied:
            return None
        on_denied = admission.bound.on_denied
        given = None if on_denied is None else on_denied(request, admission.decision)
        return _refuse(admission) if given is None else given

    async def _process_view_async(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        limits = self._limits_of(view, request.method)
        if not limits:
            return None
        admission = await run_steps_async(admit(limits, request, request.method), self._async_limiter)
        if admission is None:
            return None
        setattr(request, NAME, admission)
        if not admission.denied:
            return None
        on_denied = admission.bound.on_denied
        given = None if on_denied is None else on_denied(request, admission.decision)
        if inspect.isawaitable(given):
            given = await given
        return _refuse(admission) if given is None else given

    def _limits_of(self, view: Any, method: str | None) -> tuple[BoundLimit, ...]:
        route = getattr(view, "view_class", view)
        try:
            return self._limits_by_view[route, method]
        except (KeyError, TypeError):
            pass
        scope = _name_of(route)
        found = [(one, scope) for one in getattr(view, LIMITS, ()) or getattr(route, LIMITS, ())]
        if route is not view and method is not None:
            own = getattr(getattr(route, method.lower(), None), LIMITS, ())
            found += [(one, f"{scope}.{method.lower()}") for one in own]
        if any(one is None for one, _ in found):
            limits: tuple[BoundLimit, ...] = ()
        else:
            own = [(self._declare(one.policy, one.options), scope) for one, scope in found if one is not None]
            limits = self._limits_of_view(scope, own)
        # A client may send any word as its method.
        if len(self._limits_by_view) < MAX_ROUTES and len(method or "") <= MAX_METHOD:
            self._limits_by_view[route, method] = limits
        return limits

    def _follow_up(self, admission: Admission, request: HttpRequest, response: HttpResponseBase) -> Steps[None]:
        """What is left to do when the view has answered."""
        yield from refund(admission, request, response)
        for name, value in admission.bound.headers.text(*admission.decisions):
            response.headers[name] = value
        if not (admission.holds or admission.settles):
            return
        if getattr(response, "streaming", False):
            # A stream ends with its last byte, or when its reader leaves; Django closes it on a thread.
            response._resource_closers.append(lambda: self._end(admission, request, response))
            return
        admission.release()
        yield from settle(admission, request, response)

    def _end(self, admission: Admission, request: HttpRequest, response: HttpResponseBase) -> None:
        admission.release()
        run_steps(settle(admission, request, response), self.limiter)


def _refuse(admission: Admission) -> HttpResponse:
    refusal = Refusal(admission)
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.fields))


def _release(request: HttpRequest) -> None:
    """Gives back the holds of a request that has no response."""
    if (admission := getattr(request, NAME, None)) is not None:
        admission.release()
