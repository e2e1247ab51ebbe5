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
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from .._shown import shown
from .._tidegate import AsyncLimiter, Decision
from ..errors import ConfigError
from ..web.bound_limit import BoundLimit
from ..web.declared_limit import DeclaredLimit, PolicyOption
from ..web.exchange import ADAPTER, NAME, App, Lifespan, Message, Receive, Scope, Send
from ..web.keys import claim, client_ip, fixed, header, user
from ..web.layers import RouteLimits
from ..web.options import LimitOptions
from .exchange import StarletteExchange
from .routes import (
    UNATTACHED,
    EndpointLimit,
    allows,
    dependencies_of,
    depends_on,
    has_latest_route,
    has_routes,
    limits_of,
    name_of,
    patch_routes,
    path_of,
    place_of,
    place_of_dependency,
    routes_of,
    with_limit,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RateLimit", "Tidegate", "claim", "client_ip", "fixed", "header", "user"]


# How many routes and methods are remembered: a client may make up methods, a server has few.
MAX_ROUTES = 10_000
# The longest method whose limits are kept.
MAX_METHOD = 32

UNROUTED = (
    "@tg.{} stands at {}, which no route calls: it would limit no request. It belongs directly below @app.get(…). "
    "A decorator between them needs functools.wraps; a function that endpoints call is limited with "
    "@limiter.limit(…) or limiter.check(…)"
)


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

    @functools.cached_property
    def _endpoint_limits(self) -> list[EndpointLimit]:
        """What the decorators have given to endpoints."""
        return []

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

        def build_stack() -> App:
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
        if has_routes(view):
            raise ConfigError(
                f"@tg.{decorator} is for endpoints, and {name_of(view)} has routes of its own: limit or exempt these, "
                "or give it dependencies=[Depends(RateLimit(…))]"
            )
        known = (getattr(route, "endpoint", None) for _, route in routes_of(self._apps))
        if has_latest_route(view) or any(one is view for one in known):
            raise ConfigError(
                f"@tg.{decorator} stands above the route of {name_of(view)}, which is registered without it: "
                "put it below @app.get(…)"
            )

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        limit = EndpointLimit(self, declared, view)
        self._endpoint_limits.append(limit)
        self._routes_verified = False
        return with_limit(view, limit)

    def _verify_routes(self) -> None:
        """Raises for a limit that no request would meet, and for a dependency with a policy that is wrong."""
        for limit in self._endpoint_limits:
            if not limit.routed:
                raise ConfigError(UNROUTED.format("exempt" if limit.declared is None else "limit", name_of(limit.view)))
        for _, route in routes_of(self._apps):
            for dependency in dependencies_of(route, RateLimit):
                dependency.bound_to(self, route)
        self._routes_verified = True

    def _wrap(self, inner: App) -> App:
        """The application; the messages of each response pass through an exchange."""

        async def verified(scope: Scope, receive: Receive, send: Send) -> None:
            async def observe(message: Message) -> None:
                if message["type"] == "lifespan.startup.complete":
                    # Routes may be added until now.
                    self._verify_routes()
                await send(message)

            await inner(scope, receive, observe)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await self._run_lifespan(verified, scope, receive, send)
                return
            if scope["type"] not in ("http", "websocket"):
                await inner(scope, receive, send)
                return
            if self._closed:
                self._reopen()
            self._refresh()
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
                send = exchange.checking(self._application, receive, send)
            await app(scope, receive, send)

        return counted

    def limits_for(self, route: Any, scope: Scope, exchange: StarletteExchange) -> tuple[BoundLimit, ...]:
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
        found = list(limits_of(endpoint, method))
        if any(one.owner is not self for one in found):
            raise ConfigError(UNATTACHED.format(name_of(endpoint)))
        defaults, exempt = False, any(one.declared is None for one in found)
        if not self.enabled or exempt:
            limits: tuple[BoundLimit, ...] = ()
        elif not allows(route, endpoint, method):
            limits = self._application
        else:
            path = path_of(route)
            own = [
                (one.declared, place_of(one.view, endpoint, self._apps, path))
                for one in found
                if one.declared is not None
            ]
            use_default = not depends_on(route, RateLimit)
            place = place_of(endpoint, endpoint, self._apps, path) if hasattr(route, "endpoint") else path
            limits = self._limits_of_view(place, own, use_default=use_default)
            defaults = any(bound.declared is self._default for bound in limits)
        answer = (route, limits, defaults, exempt)
        # A client may send any word as its method.
        if len(self._limits_by_route) < MAX_ROUTES and len(method or "") <= MAX_METHOD:
            self._limits_by_route[id(route), method] = answer
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
        self._bound: dict[int, tuple[Tidegate, int, BoundLimit]] = {}

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
            await exchange.withdraw(tidegate._application)
        exchange.told[self] = decision = await exchange.enforce((bound,))
        return decision

    def bound_to(self, tidegate: Tidegate, route: Any) -> BoundLimit:
        """The limit, prepared for the limiter of a Tidegate."""
        known = self._bound.get(id(tidegate))
        if known is None or known[0] is not tidegate or known[1] != tidegate._generation:
            declared = tidegate._declare(self._policy, self._options)
            bound = tidegate._bind(declared, place_of_dependency(self, tidegate._apps, route))
            known = self._bound[id(tidegate)] = (tidegate, tidegate._generation, bound)
        return known[2]


# FastAPI resolves the names of annotations in the globals of a function; an instance has none.
RateLimit.__call__.__annotations__.update(connection=HTTPConnection)

patch_routes()
