"""Limits for FastAPI and Starlette.

    from tidegate.fastapi import Tidegate, RateLimit

    app = FastAPI()
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.get("/login")
    @tg.limit("5/minute")
    async def login(): ...

    @app.get("/search", dependencies=[Depends(RateLimit("10/second"))])
    def search(): ...

Functions given as options get the `Request` (a `WebSocket` for websockets). `user()` reads `request.user`, `claim()`
the verified claims in `request.state.claims`. The default does not apply to routes with a limit of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from ._shown import shown
from ._starlette_refusal import as_websocket_error, refusal_of, respond_to
from ._starlette_routes import LIMITS, depends_on, first_route_with, limits_of, name_of, route_of, set_limits
from ._tidegate import AsyncLimiter, Policy
from .errors import ConfigError
from .web.admission import give_back
from .web.bound_limit import BoundLimit
from .web.declared_limit import DeclaredLimit
from .web.exchange import ADAPTER, NAME, AsgiExchange
from .web.keys import MissingPeer, claim, client_ip, header, user
from .web.layers import RouteLimits
from .web.lifespan import App, Lifespan, Message, Receive, Scope, Send
from .web.options import LimitOptions
from .web.steps import run_steps_async

if TYPE_CHECKING:
    from typing_extensions import Unpack

try:
    from fastapi.routing import APIRoute
except ImportError:  # Starlette alone
    APIRoute = Route  # type: ignore[misc, assignment]

__all__ = ["RateLimit", "Tidegate", "claim", "client_ip", "header", "user"]

# How many routes and methods are remembered: a client may make up methods, a server has few.
MAX_ROUTES = 10_000
# The longest method whose limits are kept.
MAX_METHOD = 32

UNATTACHED = (
    "{} has a limit of a Tidegate that is not attached to the application that serves it: give it the application, "
    "Tidegate(app, …) or tg.init_app(app)"
)


class _StarletteExchange(AsgiExchange):
    # Whether the limits of the route, or the default, were checked.
    checked = False
    # Whether that was the default, and nothing else.
    checked_default = False

    def __init__(self, send: Send, tidegate: Tidegate, scope: Scope, receive: Receive) -> None:
        # All of `super().__init__`, whose call would cost every request.
        self._send = send
        self.limiter = tidegate.limiter
        self.scope = scope
        self.tidegate = tidegate
        self.receive = receive

    async def enforce(self, limits: Sequence[BoundLimit]) -> None:
        """Checks the limits; raises what answers a request that they deny."""
        try:
            admission = await self.check(limits)
        except MissingPeer as error:
            raise as_websocket_error(self.scope, error) from error
        if admission is None or not admission.denied:
            return
        for other in self.admissions:
            if other is not admission:
                # A request that one limit denies costs nothing of the others.
                other.release()
                charges = [charge for charge in other.charges if not charge.returned]
                for charge in charges:
                    charge.returned = True
                await run_steps_async(give_back(charges), self.limiter)
        raise await refusal_of(self, admission)

    def make_request(self) -> HTTPConnection:
        if self.scope["type"] == "http":
            return Request(self.scope, self.receive, self.send)
        return WebSocket(self.scope, self.receive, self.send)

    def make_response(self, message: Message) -> Response:
        response = Response(status_code=message["status"])
        response.raw_headers = list(message.get("headers", ()))
        return response


class Tidegate(Lifespan, RouteLimits[AsyncLimiter, Starlette]):
    """Limits of a FastAPI or Starlette application.

    default: the policy of every route without a limit of its own, and of requests that have no route.
    limiter: the limiter; without one it is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application is shut down.
    key, cost, skip, on_denied, headers, refund_when, settle, methods: the defaults of the options of all limits.

    `limit` decorates endpoints, sync and async, with and without a `request`.
    """

    _limiter_class = AsyncLimiter
    _adapter = ADAPTER

    def init_app(self, app: Starlette) -> None:
        """Limits an application from now on."""
        if not isinstance(app, Starlette):
            raise ConfigError(f"Tidegate limits a FastAPI or Starlette application, not {shown(app)}")
        if getattr(app.state, NAME, None) is not None:
            raise ConfigError("this application has a Tidegate already")
        if app.middleware_stack is not None:
            raise ConfigError("this application has begun to serve: attach Tidegate before the first request")
        setattr(app.state, NAME, self)
        self._apps.append(app)
        build = app.build_middleware_stack
        # Outside all middleware, also outside that which turns an error into a 500: every response gets the fields.
        app.build_middleware_stack = lambda: self._wrap(build())  # type: ignore[method-assign]

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        if isinstance(view, BaseRoute) or not callable(view):
            raise ConfigError(f"@tg.{decorator} is for endpoints, not for {shown(view)}")
        if any(getattr(route, "endpoint", None) is view for app in self._apps for route in app.routes):
            raise ConfigError(
                f"@tg.{decorator} stands above the route of {name_of(view)}, which is registered without it: "
                "put it below @app.get(…)"
            )

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        set_limits(view, [(self, declared)] if declared is None else [(self, declared), *getattr(view, LIMITS, ())])
        return view

    def _wrap(self, inner: App) -> App:
        """The application; the messages of each response pass through an exchange."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await self._run_lifespan(inner, scope, receive, send)
                return
            if scope["type"] not in ("http", "websocket"):
                await inner(scope, receive, send)
                return
            if self._closed:
                self._reopen()
            scope[NAME] = exchange = _StarletteExchange(send, self, scope, receive)
            try:
                await inner(scope, receive, exchange.send)
            finally:
                # Scope and exchange refer to each other. Without the cycle they are freed now, not by the collector.
                scope.pop(NAME, None)
                if exchange.ends_with_body:
                    await exchange.end()

        return app

    def limits_of(self, scope: Scope, exchange: _StarletteExchange) -> tuple[BoundLimit, ...]:
        """The limits of a request whose route is known."""
        exchange.checked = True
        route = route_of(scope)
        known = self._limits_by_route.get((id(route), scope.get("method")))
        limits = known[1] if known is not None else self._find_limits(route, scope)
        exchange.checked_default = limits is self._default
        return limits

    def _find_limits(self, route: Any, scope: Scope) -> tuple[BoundLimit, ...]:
        endpoint, method = scope.get("endpoint"), scope.get("method")
        found = list(limits_of(endpoint, method))
        if any(tidegate is not self for tidegate, _ in found):
            raise ConfigError(UNATTACHED.format(name_of(endpoint)))
        if any(declared is None for _, declared in found):
            limits: tuple[BoundLimit, ...] = ()
        else:
            place = name_of(endpoint)
            own = [(declared, place) for _, declared in found if declared is not None]
            limits = self._limits_of_view(place, own, use_default=not depends_on(route, RateLimit))
        # A client may send any word as its method.
        if len(self._limits_by_route) < MAX_ROUTES and len(method or "") <= MAX_METHOD:
            self._limits_by_route[id(route), method] = (route, limits)
        return limits


class RateLimit:
    """A limit as a dependency of FastAPI: of a route, a router, or an application. All of its routes share it.

        @app.get("/search", dependencies=[Depends(RateLimit("10/second"))])
        router = APIRouter(dependencies=[Depends(RateLimit("api", key=header("X-API-Key")))])

    The application needs a `Tidegate(app, …)`, whose limiter is used. The options are key, cost, skip, on_denied,
    headers, refund_when, settle and methods.
    """

    def __init__(self, policy: str | Policy | Sequence[Any], **options: Unpack[LimitOptions]) -> None:
        self._policy, self._options = policy, options
        DeclaredLimit(policy, **options)
        self._bound: dict[int, tuple[Tidegate, BoundLimit]] = {}

    async def __call__(self, connection: HTTPConnection) -> None:
        scope = connection.scope
        exchange: _StarletteExchange | None = scope.get(NAME)
        if exchange is None:
            raise ConfigError("RateLimit has no limiter: attach one with Tidegate(app, store=…)")
        tidegate = exchange.tidegate
        known = self._bound.get(id(tidegate))
        if known is None or known[0] is not tidegate:
            declared = tidegate._declare(self._policy, self._options)
            bound = tidegate._bind(declared, first_route_with(self, scope))
            known = self._bound[id(tidegate)] = (tidegate, bound)
        if exchange.checked_default:
            # The default was checked before this limit was known, which replaces it.
            exchange.checked_default = False
            exchange.use_admissions()
            defaults, exchange.admissions = exchange.admissions, ()
            for default in defaults:
                default.release()
                await run_steps_async(give_back(default.charges), tidegate.limiter)
        await exchange.enforce((known[1],))


# FastAPI resolves the names of annotations in the globals of a function; an instance has none.
RateLimit.__call__.__annotations__["connection"] = HTTPConnection


def _with_check(handle: Any) -> Any:
    """The method by which a route handles a request, preceded by the check of its limits.

    Starlette and FastAPI have changed more than once how they find a route. That the route is then called with the
    request has not changed.
    """

    @functools.wraps(handle)
    async def handle_checked(self: BaseRoute, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: _StarletteExchange | None = scope.get(NAME)
        if exchange is None:
            if getattr(scope.get("endpoint"), LIMITS, None):
                raise ConfigError(UNATTACHED.format(name_of(scope["endpoint"])))
        elif not exchange.checked:
            try:
                if limits := exchange.tidegate.limits_of(scope, exchange):
                    await exchange.enforce(limits)
            except Exception as error:
                await respond_to(error, scope, receive, send)
                return
        await handle(self, scope, receive, send)

    setattr(handle_checked, LIMITS, True)
    return handle_checked


for _class in (Route, WebSocketRoute, APIRoute):
    if "handle" in vars(_class) and not hasattr(_class.handle, LIMITS):
        _class.handle = _with_check(_class.handle)  # type: ignore[method-assign]
