"""Limits for FastAPI and Starlette.

    from tidegate.fastapi import Tidegate, RateLimit

    app = FastAPI()
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    async def login(): ...

    @app.get("/search")
    def search(decision: Annotated[Decision | None, Depends(RateLimit("10/second"))]): ...

A default is a budget of each route without a limit of its own; `application` is one budget for all requests, also
those without a route. Neither counts preflights that a CORSMiddleware of the application answers.

A refusal is an exception, `tidegate.RateLimited` and an HTTPException at once. Exception handlers of the application
may answer it; otherwise it is a problem document. Middleware sees the response as it sees any other.

The Decision is in `request.state.rate_limit`. Functions given as options get the `Request` (a `WebSocket` for
websockets). `user()` reads `request.user` or `request.state.user`, `claim()` the verified claims in
`request.state.claims`. Middleware sets these before a limit is checked. A dependency that sets them stands before
`Depends(RateLimit(…))`, which is checked in its turn; `@tg.limit` and defaults are checked before all dependencies.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette._exception_handler import wrap_app_handling_exceptions
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.exceptions import WebSocketException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from .._shown import shown
from .._tidegate import AsyncLimiter, Decision
from ..errors import ConfigError, KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission, withdraw
from ..web.exchange import ADAPTER, NAME, App, AsgiExchange, Lifespan, Message, Receive, Scope, Send
from ..web.functions import qualified_name
from ..web.keys import MissingPeer, UnusableKey, claim, client_ip, fixed, header, user
from ..web.layers import RouteLimits, unattached
from ..web.limit import BoundLimit, DeclaredLimit, PolicyOption
from ..web.options import LimitOptions
from ..web.processes import warn_of_memory
from ..web.refusal import CLOSE_CODE, CLOSE_REASON, Refusal
from ..web.steps import run_steps_async
from . import openapi, routes
from .openapi import STATUS

try:
    from fastapi.exception_handlers import http_exception_handler
    from fastapi.exceptions import HTTPException
except ImportError:  # Starlette alone
    HTTPException = StarletteHTTPException  # type: ignore[misc, assignment]
    http_exception_handler = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RateLimit", "Tidegate", "claim", "client_ip", "fixed", "header", "user"]


# Where ExceptionMiddleware leaves the handlers of its application: those of classes, and those of statuses.
HANDLERS = "starlette.exception_handlers"
# A websocket that can be answered with a status has this extension.
DENIAL = "websocket.http.response"

UNROUTED = (
    "@tg.{} stands at {}, which no route calls: it would limit no request. It belongs directly below @app.get(…). "
    "A decorator between them needs functools.wraps; a function that endpoints call is limited with "
    "@limiter.limit(…) or limiter.check(…)"
)


class _Refused:
    """What an exception of a refusal is, beside an exception of Tidegate and an HTTPException."""

    __str__ = RateLimited.__str__

    def __init__(self, exchange: AsgiExchange, cause: Admission | StoreError | KeyInvalid) -> None:
        refusal, announced = Refusal(cause), {}
        if isinstance(cause, Admission):
            super().__init__(cause.decision)  # type: ignore[call-arg]
            headers, said = exchange.announced()
            announced = dict(headers.text(*said))
        else:
            super().__init__(cause.message, cause.code)  # type: ignore[call-arg]
        self.status_code, self.detail, self.body = refusal.status, refusal.phrase, refusal.body
        # What a handler of HTTPException passes on: not the type of a body that is not its own.
        self.headers = {**announced, **dict(refusal.own_fields)}


class Refused(_Refused, RateLimited, HTTPException):  # type: ignore[misc]
    """A refused request. Handlers of RateLimited, of HTTPException and of its status may answer it."""


class StoreRefused(_Refused, StoreError, HTTPException):  # type: ignore[misc]
    """A request that cannot be checked: its store is missing, and its policy says "raise"."""


class KeyRefused(_Refused, KeyInvalid, HTTPException):  # type: ignore[misc]
    """A request whose client has made its key unusable."""


_KINDS: dict[type[Exception], Any] = {RateLimited: Refused, StoreError: StoreRefused, KeyInvalid: KeyRefused}


class Answered(RateLimited):
    """A refused request that `on_denied` has answered. No HTTPException, so no handler of a status comes first."""

    def __init__(self, admission: Admission, response: Any) -> None:
        super().__init__(admission.decision)
        self.response = response


async def refusal_of(exchange: AsgiExchange, cause: Admission | StoreError | KeyInvalid) -> Exception:
    """The exception of a refused request, after the application has got a handler for it: one of its own, or ours."""
    exchange.refused = True
    scope = exchange.scope
    error: Exception
    own = None
    if isinstance(cause, Admission) and (given := await exchange.answer_given(cause)) is not None:
        # Only `on_denied` knows the answer.
        error = Answered(cause, given)
    else:
        base = next((one for one in (StoreError, KeyInvalid) if isinstance(cause, one)), RateLimited)
        if (
            scope["type"] != "http"
            and DENIAL not in (scope.get("extensions") or ())
            and _handler_of(scope, base) is None
        ):
            # The server can only close the websocket.
            reason = "rate limited" if isinstance(cause, Admission) else cause.code
            return WebSocketException(Refusal(cause).close_code, reason)
        error = _KINDS[base](exchange, cause)
        own = _handler_of(scope, type(error))
    handlers = scope.get(HANDLERS)
    if handlers is not None and type(error) not in handlers[0]:
        handlers[0][type(error)] = own or _answer
    return error


def _handler_of(scope: Scope, kind: type[Exception]) -> Any:
    """The application's own handler of a class, if it has one. Those that the frameworks bring answer any status."""
    return _own_handler(scope[HANDLERS][0] if HANDLERS in scope else {}, kind)


def _own_handler(handlers: Any, kind: type[Exception]) -> Any:
    for one in kind.__mro__:
        handler = handlers.get(one)
        brought = handler is http_exception_handler or (
            getattr(handler, "__func__", None) is ExceptionMiddleware.http_exception
        )
        if handler is not None and not brought:
            return handler
    return None


def _answers_refusals(app: Starlette) -> bool:
    """Whether an application has a handler of its own for refused requests. That of Exception comes after ours."""
    handlers = {kind: handler for kind, handler in app.exception_handlers.items() if kind is not Exception}
    return STATUS in handlers or _own_handler(handlers, Refused) is not None


async def _answer(connection: HTTPConnection, error: Any) -> Any:
    if isinstance(error, Answered):
        return error.response
    body = b"" if connection.scope.get("method") == "HEAD" else error.body
    fields = {**(error.headers or {}), "Content-Length": str(len(error.body))}
    response = Response(body, error.status_code, fields, "application/problem+json")
    if isinstance(connection, WebSocket):
        # Older Starlettes do not send what is returned for a websocket, and do not know this answer.
        start = {"type": f"{DENIAL}.start", "status": error.status_code, "headers": response.raw_headers}
        await connection._send(start)
        await connection._send({"type": f"{DENIAL}.body", "body": body, "more_body": False})
        return None
    return response


class StarletteExchange(AsgiExchange):
    """A request with the limits of its route and of its dependencies."""

    # Whether the limits of the route were checked, or those of a mounted application without routes.
    checked = False
    mounted = False
    # Whether the endpoint is exempt, also from the limits that dependencies bring.
    exempt = False
    # Whether the default was checked for a route that may have a dependency with a limit, which replaces it.
    checked_default = False
    # What each dependency was told: it asks once, however often a route has it.
    told: dict[Any, Decision | None] | None = None

    answer = "a Response, or None for the default one"

    def __init__(self, send: Send, tidegate: Tidegate, scope: Scope, receive: Receive) -> None:
        # All of `super().__init__`, whose call would cost every request.
        self._send = send
        self.limiter = tidegate.limiter
        self.scope = scope
        self.tidegate = tidegate
        self.receive = receive

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
        """Checks the limits; raises what answers a request that they deny. None: no limit applies to it."""
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
        for other in self.admissions:
            if other is not admission:
                # A request that one limit denies costs nothing of the others.
                await run_steps_async(withdraw(other), self.limiter)
        raise await refusal_of(self, admission)

    async def replace(self, limits: Sequence[BoundLimit]) -> None:
        """Takes back what was admitted, and checks these limits instead."""
        admissions, self.admissions = self.admissions, ()
        for admission in admissions:
            await run_steps_async(withdraw(admission), self.limiter)
        if limits:
            await self.enforce(limits)

    async def answers(self, route: Any, scope: Scope, receive: Receive, send: Send) -> bool:
        """Checks the limits of a route; without one, those of the application. Whether it has answered the request.

        An exception from before the endpoint is answered as one that the endpoint raises.
        """
        try:
            limits = self.tidegate._application if route is None else self.tidegate._limits_for(route, scope, self)
            if limits:
                await self.enforce(limits)
            return False
        except Exception as caught:
            error = caught

        async def fail(scope: Scope, receive: Receive, send: Send) -> None:
            raise error

        http = scope["type"] == "http"
        connection: Any = Request(scope, receive, send) if http else WebSocket(scope, receive, send)
        try:
            await wrap_app_handling_exceptions(fail, connection)(scope, receive, send)
        finally:
            # The traceback refers to frames that refer to the exception: a cycle for the collector.
            error.__traceback__ = None
        return True

    def checking(self, receive: Receive, send: Send) -> Send:
        """A `send` that checks the application's limit before a response that no route makes: a 404, a redirect."""
        dropped = False

        async def checked(message: Message) -> None:
            nonlocal dropped
            if not dropped and not self.checked:
                self.checked = True
                dropped = await self.answers(None, self.scope, receive, send)
            if not dropped:
                await send(message)

        return checked


class Tidegate(Lifespan, RouteLimits[AsyncLimiter, Starlette]):
    """Limits of a FastAPI or Starlette application.

    default: the policy of each route without a limit of its own: a budget per route.
    application: the policy of all requests together, asked with the limits of the route in one round trip.
    limiter: the limiter; without one it is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application is shut down.
    enabled: False does nothing at all; without it the environment variable TIDEGATE_ENABLED says so.
    skip: a function of the request; true exempts it from all limits.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the defaults of the
    options of all limits.

    `limit` decorates endpoints, sync and async, with and without a `request`.
    """

    _limiter_class = AsyncLimiter
    _adapter = ADAPTER
    # Whether each limit of a decorator has a route.
    _routes_verified = False

    # What the decorators have given to endpoints.
    _endpoint_limits: tuple[routes.EndpointLimit, ...] = ()

    def init_app(self, app: Starlette) -> None:
        """Limits an application from now on."""
        if not isinstance(app, Starlette):
            raise ConfigError(f"Tidegate limits a FastAPI or Starlette application, not {shown(app)}")
        if getattr(app.state, NAME, None) is not None:
            raise ConfigError("this application has a Tidegate already")
        if app.middleware_stack is not None:
            raise ConfigError("this application has begun to serve: attach Tidegate before the first request")
        if self.enabled:
            warn_of_memory(self.limiter)
        setattr(app.state, NAME, self)
        self._apps.append(app)
        build = app.build_middleware_stack

        openapi.describe(self, app, RateLimit, _answers_refusals)

        def build_stack() -> App:
            # The application may have another document by now, and others mounted in it.
            openapi.describe(self, app, RateLimit, _answers_refusals)
            # Inside all other middleware: CORSMiddleware has answered preflights, and sees what is refused.
            innermost = Middleware(self._with_application)
            app.user_middleware.append(innermost)
            try:
                # Outside all middleware, also outside that which turns an error into a 500: every response gets the
                # fields.
                return self._wrap(build())
            finally:
                app.user_middleware.remove(innermost)

        app.build_middleware_stack = build_stack  # type: ignore[method-assign]

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        if isinstance(view, BaseRoute) or not callable(view):
            raise ConfigError(f"@tg.{decorator} is for endpoints, not for {shown(view)}")
        if routes.has_routes(view):
            raise ConfigError(
                f"@tg.{decorator} is for endpoints, and {qualified_name(view)} has routes of its own: limit or exempt "
                "these, or give it dependencies=[Depends(RateLimit(…))]"
            )
        known = (getattr(route, "endpoint", None) for _, route in routes.routes_of(self._apps))
        if routes.has_latest_route(view) or any(one is view for one in known):
            raise self._above_route(qualified_name(view), decorator)

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        limit = routes.EndpointLimit(self, declared, view)
        self._endpoint_limits = (*self._endpoint_limits, limit)
        self._routes_verified = False
        return routes.with_limit(view, limit)

    def _started(self) -> None:
        # Routes may be added until now.
        self._verify_routes()

    def _verify_routes(self) -> None:
        """Raises for a limit that no request would meet, and for a dependency with a policy that is wrong."""
        for limit in self._endpoint_limits:
            if not limit.routed:
                decorator, name = "exempt" if limit.declared is None else "limit", qualified_name(limit.view)
                raise ConfigError(UNROUTED.format(decorator, name))
        for _, route in routes.routes_of(self._apps):
            for dependency in routes.dependencies_of(route):
                if isinstance(dependency, RateLimit):
                    dependency.bound_to(self, route)
        self._routes_verified = True

    def _wrap(self, inner: App) -> App:
        """The application; the messages of each response pass through an exchange."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if (unlimited := self._unlimited(inner, scope, receive, send)) is not None:
                await unlimited
                return
            if not self._routes_verified:
                self._verify_routes()
            scope.setdefault("state", {}).setdefault("rate_limit", None)
            scope[NAME] = exchange = StarletteExchange(send, self, scope, receive)
            try:
                await inner(scope, receive, exchange.send)
            finally:
                # Scope and exchange refer to each other. Without the cycle they are freed now, not by the collector.
                scope.pop(NAME, None)
                if exchange.ends_with_body:
                    await exchange.end_handler()

        return app

    def _with_application(self, app: App) -> App:
        """The application without its middleware; the limit of the application counts what has no route."""
        if not self._application or not self.enabled:
            return app

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            exchange: StarletteExchange | None = scope.get(NAME)
            if exchange is not None and exchange.tidegate is self:
                send = exchange.checking(receive, send)
            await app(scope, receive, send)

        return counted

    def _limits_for(self, route: Any, scope: Scope, exchange: StarletteExchange) -> tuple[BoundLimit, ...]:
        """The limits of a request whose route is known."""
        exchange.checked = True
        known = self._limits_by_route.get((id(route), scope.get("method")))
        _, limits, defaults, exchange.exempt = known if known is not None else self._find_limits(route, scope)
        if exchange.mounted:
            # The application was asked at the mount, with its default.
            return tuple(bound for bound in limits if bound not in self._application and not defaults)
        exchange.checked_default = defaults
        return limits

    def _find_limits(self, route: Any, scope: Scope) -> tuple[Any, tuple[BoundLimit, ...], bool, bool]:
        endpoint, method = scope.get("endpoint"), scope.get("method")
        found = routes.limits_of(endpoint, method)
        if any(one.owner is not self for one in found):
            raise unattached(qualified_name(endpoint))
        exempt = any(one.declared is None for one in found)
        limits: tuple[BoundLimit, ...] = ()
        if self.enabled and not exempt and not routes.allows(route, endpoint, method):
            limits = self._application
        elif self.enabled and not exempt:
            path = routes.path_of(route)
            where = endpoint, self._apps, path
            own = [(one.declared, routes.place_of(one.view, *where)) for one in found if one.declared]
            use_default = not any(isinstance(one, RateLimit) for one in routes.dependencies_of(route))
            place = routes.place_of(endpoint, *where) if hasattr(route, "endpoint") else path
            limits = self._limits_of_view(place, own, use_default=use_default)
        defaults = any(bound.declared is self._default for bound in limits)
        # The id is that of this route as long as the route is kept.
        answer = (route, limits, defaults, exempt)
        self._remember(id(route), method, answer)
        return answer


class RateLimit:
    """A limit as a dependency of FastAPI: of a route, a router, or an application. All of its routes share it.

        @app.get("/search", dependencies=[Depends(RateLimit("10/second"))])
        router = APIRouter(dependencies=[Depends(RateLimit("api", key=header("X-API-Key")))])

    Its value is the Decision, or None for a request that it does not limit. A request asks it once, however often its
    route has it. The application needs a `Tidegate(app, …)`, whose limiter is used. The options are key, cost, skip,
    on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method and enabled.
    """

    def __init__(self, policy: PolicyOption, **options: Unpack[LimitOptions]) -> None:
        self._policy, self._options = policy, options
        DeclaredLimit(policy, **options)

    async def __call__(self, connection: HTTPConnection) -> Decision | None:
        scope = connection.scope
        exchange: StarletteExchange | None = scope.get(NAME)
        if exchange is None:
            raise ConfigError("RateLimit has no limiter: attach one with Tidegate(app, store=…)")
        tidegate = exchange.tidegate
        if not tidegate.enabled or exchange.exempt:
            return None
        if exchange.told is None:
            exchange.told = {}
        elif self in exchange.told:
            return exchange.told[self]
        bound = self.bound_to(tidegate, scope.get("route"))
        if not bound.declared.enabled:
            return None
        if exchange.checked_default:
            # The default was checked before this limit was known, which replaces it.
            exchange.checked_default = False
            await exchange.replace(tidegate._application)
        exchange.told[self] = decision = await exchange.enforce((bound,))
        return decision

    def bound_to(self, tidegate: Tidegate, route: Any) -> BoundLimit:
        """The limit, prepared for the limiter of a Tidegate."""
        known: BoundLimit | None = tidegate._limits_by_route.get(self)
        if known is None:
            declared = tidegate._declare(self._policy, self._options)
            known = tidegate._bind(declared, routes.place_of_dependency(self, tidegate._apps, route))
            tidegate._limits_by_route[self] = known
        return known


# FastAPI resolves the names of annotations in the globals of a function; an instance has none.
RateLimit.__call__.__annotations__.update(connection=HTTPConnection)

routes.patch_routes()
