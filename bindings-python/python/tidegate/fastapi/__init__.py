"""Limits for FastAPI and Starlette.

    from tidegate.fastapi import Tidegate, RateLimit

    app = FastAPI()
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    async def login(): ...

    @app.get("/search")
    def search(decision: Annotated[Decision | None, Depends(RateLimit("10/second"))]): ...

`default` gives each route without a limit its own budget. `application` is one budget for all requests, also those
without a route. Neither counts preflights that a CORSMiddleware of the application answers.

A refusal is an exception, `tidegate.RateLimited` and an HTTPException at once. Your exception handlers may answer it.
Otherwise it becomes a problem document. Middleware sees the response as it sees any other.

You find the Decision in `request.state.rate_limit`. Functions in options get the `Request` (a `WebSocket` for
websockets). `user()` reads `request.user` or `request.state.user`, `claim()` the verified claims in
`request.state.claims`. Middleware sets these before a limit is checked. If a dependency sets them, put it before
`Depends(RateLimit(…))`, which is checked in its turn. `@tg.limit` and defaults are checked before all dependencies.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import WebSocketException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.websockets import WebSocket

from .._shown import shown
from .._tidegate import AsyncLimiter, Decision
from ..errors import ConfigError, KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission, withdraw
from ..web.exchange import ADAPTER, NAME, App, AsgiExchange, Lifespan, Message, Receive, Scope, Send, is_answerable
from ..web.functions import qualified_name
from ..web.keys import MissingPeer, UnusableKey, claim, client_ip, fixed, header, user
from ..web.layers import RouteLimits, unattached, with_wrapped_apps
from ..web.limit import BoundLimit, DeclaredLimit, PolicyOption
from ..web.options import LimitOptions
from ..web.refusal import CLOSE_CODE, CLOSE_REASON, Refusal
from ..web.steps import run_steps_async
from . import openapi, routes
from .openapi import STATUS
from .routes import HTTPException, http_exception_handler

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RateLimit", "Tidegate", "claim", "client_ip", "fixed", "header", "user"]


# ExceptionMiddleware leaves the handlers of its application under this key: those of classes, and those of statuses.
HANDLERS = "starlette.exception_handlers"

UNROUTED = (
    "@tg.{} stands at {}, which no route calls: it would limit no request. It belongs directly below @app.get(…). "
    "A decorator between them needs functools.wraps; a function that endpoints call is limited with "
    "@limiter.limit(…) or limiter.check(…)"
)


class _Refused:
    """The common part of the exceptions of a refusal. Each is also an exception of Tidegate and an HTTPException."""

    __str__ = RateLimited.__str__

    def __init__(self, exchange: AsgiExchange, refusal: Refusal) -> None:
        super().__init__(*refusal.arguments)
        self.status_code, self.detail, self.body = refusal.status, refusal.phrase, refusal.body
        # A handler of HTTPException passes these on, but it has its own body, so the content type is not among them.
        self.headers = dict(refusal.own_fields)
        if isinstance(refusal.cause, Admission):
            headers, announced = exchange.announced()
            self.headers = {**dict(headers.text(*announced)), **self.headers}


class Refused(_Refused, RateLimited, HTTPException):  # type: ignore[misc]
    """A refused request. Handlers of RateLimited, of HTTPException and of its status may answer it."""


class StoreRefused(_Refused, StoreError, HTTPException):  # type: ignore[misc]
    """A request that cannot be checked, because its store is missing and `on_store_error` is "raise"."""


class KeyRefused(_Refused, KeyInvalid, HTTPException):  # type: ignore[misc]
    """A request with a key that its client has made unusable."""


class Answered(RateLimited):
    """A refused request that `on_denied` has answered. No HTTPException, so no handler of a status comes first."""

    def __init__(self, admission: Admission, response: Any) -> None:
        super().__init__(admission.decision)
        self.response = response


async def refusal_of(exchange: AsgiExchange, cause: Admission | StoreError | KeyInvalid) -> Exception:
    """Returns the exception of a refused request, after giving the application a handler for it: its own, or ours."""
    exchange.refused = True
    handlers: dict[Any, Any] = (exchange.scope.get(HANDLERS) or ({}, {}))[0]
    if isinstance(cause, Admission) and (given := await exchange.answer_given(cause)) is not None:
        # Only `on_denied` knows the answer.
        handlers[Answered] = _answer
        return Answered(cause, given)
    refusal = Refusal(cause)
    base = refusal.one_of(RateLimited, StoreError, KeyInvalid)
    if not is_answerable(exchange.scope) and _own_handler(handlers, base) is None:
        # The server can only close the websocket.
        reason = "rate limited" if isinstance(cause, Admission) else cause.code
        return WebSocketException(refusal.close_code, reason)
    error: Exception = refusal.one_of(Refused, StoreRefused, KeyRefused)(exchange, refusal)
    handlers[type(error)] = _own_handler(handlers, type(error)) or _answer
    return error


def _own_handler(handlers: Any, kind: type[Exception]) -> Any:
    """Returns the application's own handler of a class, or None. Handlers that the frameworks bring do not count.

    A handler of Exception does not count either, because it comes after ours.
    """
    brought = (None, http_exception_handler, ExceptionMiddleware.http_exception)
    found = (handlers.get(one) for one in kind.__mro__ if one is not Exception)
    return next((one for one in found if getattr(one, "__func__", one) not in brought), None)


def _answers_refusals(app: Starlette) -> bool:
    """True if an application has its own handler for refused requests."""
    return STATUS in app.exception_handlers or _own_handler(app.exception_handlers, Refused) is not None


async def _answer(connection: HTTPConnection, error: Any) -> Any:
    if isinstance(error, Answered):
        return error.response
    body = b"" if connection.scope.get("method") == "HEAD" else error.body
    fields = {**(error.headers or {}), "Content-Length": str(len(error.body))}
    response = Response(body, error.status_code, fields, "application/problem+json")
    if isinstance(connection, WebSocket):
        # Older versions of Starlette do not send the response of a websocket.
        await response(connection.scope, connection._receive, connection._send)
        return None
    return response


class StarletteExchange(AsgiExchange):
    """A request with the limits of its route and of its dependencies."""

    layer: Tidegate
    # `checked`: the limits of the route were checked. `mounted`: that route is a mounted application without routes.
    checked = False
    mounted = False
    # True if the endpoint is exempt, also from the limits of dependencies.
    exempt = False
    # True if the default was checked for the route. It may have a dependency with a limit, which replaces the default.
    checked_default = False

    answer = "a Response, or None for the default one"

    @functools.cached_property
    def told(self) -> dict[RateLimit, Decision | None]:
        """The Decision of each dependency. It is checked once, however often a route has it."""
        return {}

    @functools.cached_property
    def request(self) -> HTTPConnection:
        """The request or the websocket."""
        if self.scope["type"] == "http":
            return Request(self.scope, self.receive, self.send)
        return WebSocket(self.scope, self.receive, self.send)

    def make_response(self, message: Message) -> Response:
        response = Response(status_code=message["status"])
        response.raw_headers = list(message.get("headers", ()))
        return response

    async def enforce(self, limits: Sequence[BoundLimit]) -> Decision | None:
        """Checks the limits. Raises the exception of a denied request. Returns None if no limit applies."""
        try:
            admission = await self.check(limits)
        except MissingPeer as error:
            if self.scope["type"] == "websocket":
                raise WebSocketException(CLOSE_CODE, CLOSE_REASON) from error
            raise
        except (StoreError, UnusableKey) as error:
            raise await refusal_of(self, error) from error
        if admission is None or admission.decision:
            return None if admission is None else admission.decision
        # If one limit denies a request, the others do not charge it.
        await run_steps_async(withdraw(self.admissions[:-1]), self.limiter)
        raise await refusal_of(self, admission)

    async def replace_default(self) -> None:
        """Takes the default back if it was checked before a dependency's limit was known, which replaces it."""
        if self.checked_default:
            self.checked_default = False
            admissions, self.admissions = self.admissions, ()
            await run_steps_async(withdraw(admissions), self.limiter)
            if limits := self.layer._application:
                await self.enforce(limits)

    async def answers(self, route: Any, scope: Scope, receive: Receive, send: Send) -> bool:
        """Checks the limits of a route, or without one those of the application. Returns True if it has answered.

        An exception before the endpoint is answered like one that the endpoint raises.
        """
        try:
            limits = self.layer._application if route is None else self.layer._limits_for(route, scope, self)
            if limits:
                await self.enforce(limits)
            return False
        except Exception as caught:
            error = caught

        async def fail(*_: Any) -> None:
            raise error

        classes, statuses = scope.get(HANDLERS) or ({}, {})
        try:
            await ExceptionMiddleware(fail, {**classes, **statuses})(scope, receive, send)
        finally:
            # The traceback refers to frames that refer to the exception. Without the cycle, both are freed now.
            error.__traceback__ = None
        return True


class Tidegate(Lifespan, RouteLimits[AsyncLimiter, Starlette]):
    """Limits of a FastAPI or Starlette application.

    default: the policy of each route without a limit. Each such route has its own budget.
    application: the policy of all requests together, checked with the limits of the route in one round trip.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application shuts down.
    enabled: False turns all limits off. Without it, the environment variable TIDEGATE_ENABLED decides.
    skip: a function of the request. If it returns true, the request is exempt from all limits.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the default options of
    all limits.

    You can decorate sync and async endpoints with `limit`, with and without a `request`.
    """

    _limiter_class = AsyncLimiter
    _adapter = ADAPTER
    _app_class, _app_name = Starlette, "FastAPI or Starlette"
    # True once each limit of a decorator is known to have a route.
    _routes_verified = False

    # The limits that decorators have given to endpoints.
    _endpoint_limits: tuple[routes.EndpointLimit, ...] = ()

    def init_app(self, app: Starlette) -> None:
        """Limits an application from now on."""
        super().init_app(app)
        if app.middleware_stack is not None:
            raise ConfigError("this application has begun to serve: attach Tidegate before the first request")
        setattr(app.state, NAME, self)
        openapi.describe(self, app, RateLimit, _answers_refusals)
        build = app.build_middleware_stack

        def build_stack() -> App:
            # The application may have another document by now, and other mounted applications.
            openapi.describe(self, app, RateLimit, _answers_refusals)
            # Inside all other middleware, so that CORSMiddleware answers preflights itself and sees refusals.
            innermost = Middleware(self._with_application)
            app.user_middleware.append(innermost)
            try:
                # Outside all middleware, even that which turns an error into a 500, so that every response gets the
                # fields.
                return functools.partial(self._serve, build())
            finally:
                app.user_middleware.remove(innermost)

        app.build_middleware_stack = build_stack  # type: ignore[method-assign]

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        if isinstance(view, BaseRoute) or not callable(view):
            raise ConfigError(f"@tg.{decorator} must stand above an endpoint, not {shown(view)}")
        # An application or a router may get its routes later.
        if any(isinstance(one, (Starlette, Router)) for one in with_wrapped_apps(view)):
            raise ConfigError(
                f"@tg.{decorator} must stand above an endpoint, and {qualified_name(view)} has routes: limit or "
                "exempt these, or give it "
                "dependencies=[Depends(RateLimit(…))]"
            )
        if routes.is_registered(view, self._apps):
            raise self._above_route(qualified_name(view), decorator)

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        limit = routes.EndpointLimit(self, declared, view)
        self._endpoint_limits = (*self._endpoint_limits, limit)
        self._routes_verified = False
        return limit.carried()

    def _started(self) -> None:
        """Raises for a limit that no request would meet, and for a dependency with a wrong policy.

        Routes may be added until now.
        """
        for limit in self._endpoint_limits:
            if not limit.routed:
                decorator, name = "exempt" if limit.declared is None else "limit", qualified_name(limit.view)
                raise ConfigError(UNROUTED.format(decorator, name))
        for _, route in routes.routes_of(self._apps):
            for dependency in routes.dependencies_of(route, RateLimit):
                dependency.bound_to(self, route)
        self._routes_verified = True

    async def _serve(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application. The messages of each response pass through an exchange."""
        if (unlimited := self._unlimited(app, scope, receive, send)) is not None:
            await unlimited
            return
        if not self._routes_verified:
            self._started()
        scope.setdefault("state", {}).setdefault("rate_limit", None)
        scope[NAME] = exchange = StarletteExchange(self, scope, receive, send)
        try:
            await app(scope, receive, exchange.send)
        finally:
            # Scope and exchange refer to each other. Without the cycle they are freed now, not by the collector.
            scope.pop(NAME, None)
            if exchange.ends_with_body:
                await exchange.end_handler()

    def _with_application(self, app: App) -> App:
        """Wraps the application inside its middleware, so that its limit also counts requests without a route.

        It is checked before the response of such a request: a 404, or a redirect.
        """

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            exchange: Any = scope.get(NAME)
            dropped = False

            async def checked(message: Message) -> None:
                nonlocal dropped
                if not dropped and not exchange.checked:
                    exchange.checked = True
                    dropped = await exchange.answers(None, scope, receive, send)
                if not dropped:
                    await send(message)

            is_own = exchange is not None and exchange.layer is self
            await app(scope, receive, checked if is_own else send)

        return counted if self._application and self.enabled else app

    def _limits_for(self, route: Any, scope: Scope, exchange: StarletteExchange) -> tuple[BoundLimit, ...]:
        """Returns the limits of a request with a known route."""
        exchange.checked = True
        endpoint, method = scope.get("endpoint"), scope.get("method")
        known = self._limits_by_route.get((id(route), method))
        if known is None:
            if any(one.owner is not self for one in routes.limits_of(endpoint, method)):
                raise unattached(qualified_name(endpoint))
            # The route is kept, so no other route gets its id.
            known = (route, *self._find_limits(route, endpoint, method))
            self._remember(id(route), method, known)
        _, limits, defaults, exchange.exempt = known
        if exchange.mounted:
            # The limit of the application and the default were checked at the mount.
            return tuple(bound for bound in limits if bound not in self._application and not defaults)
        exchange.checked_default = defaults
        return limits

    def _find_limits(self, route: Any, endpoint: Any, method: str | None) -> tuple[tuple[BoundLimit, ...], bool, bool]:
        """Returns the limits of a route and method, if the default is one, and if the endpoint is exempt from all."""
        found = routes.limits_of(endpoint, method)
        if not self.enabled or any(one.declared is None for one in found):
            return (), False, True
        if not routes.allows(route, endpoint, method):
            return self._application, False, False
        path = routes.path_of(route)
        where = endpoint, self._apps, path
        own = [(one.declared, routes.place_of(one.view, *where)) for one in found if one.declared and one.owner is self]
        use_default = not any(routes.dependencies_of(route, RateLimit))
        place = routes.place_of(endpoint, *where) if hasattr(route, "endpoint") else path
        limits = self._limits_of_view(place, own, use_default=use_default)
        return limits, any(bound.declared is self._default for bound in limits), False


class RateLimit:
    """A limit as a dependency of FastAPI: of a route, a router, or an application. All of its routes share the limit.

        @app.get("/search", dependencies=[Depends(RateLimit("10/second"))])
        router = APIRouter(dependencies=[Depends(RateLimit("api", key=header("X-API-Key")))])

    Its value is the Decision, or None for a request that it does not limit. It is checked once for a request, however
    often the route has it. The application needs a `Tidegate(app, …)`, which gives its limiter. The options are key,
    cost, skip, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method and enabled.
    """

    def __init__(self, policy: PolicyOption, **options: Unpack[LimitOptions]) -> None:
        self._policy, self._options = policy, options
        DeclaredLimit(policy, **options)

    async def __call__(self, connection: HTTPConnection) -> Decision | None:
        exchange: StarletteExchange | None = connection.scope.get(NAME)
        if exchange is None:
            raise ConfigError("RateLimit has no limiter: attach one with Tidegate(app, store=…)")
        bound = self.bound_to(exchange.layer, connection.scope.get("route"))
        if exchange.exempt or not (bound.declared.enabled and exchange.layer.enabled):
            return None
        if self not in exchange.told:
            await exchange.replace_default()
            exchange.told[self] = await exchange.enforce((bound,))
        return exchange.told[self]

    def bound_to(self, tidegate: Tidegate, route: Any) -> BoundLimit:
        """Returns the limit, prepared for the limiter of a Tidegate."""
        known: BoundLimit | None = tidegate._limits_by_route.get(self)
        if known is None:
            declared = tidegate._declare(self._policy, self._options)
            known = tidegate._bind(declared, routes.place_of_dependency(self, tidegate._apps, route))
            tidegate._limits_by_route[self] = known
        return known


# FastAPI resolves the names of annotations in the globals of a function. An instance has none.
RateLimit.__call__.__annotations__.update(connection=HTTPConnection)

routes.patch_routes()
