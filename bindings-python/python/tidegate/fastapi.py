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
the verified claims in `request.state.claims`. Routes with a limit of their own are not asked for the default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from ._tidegate import AsyncLimiter, Policy
from .errors import ConfigError
from .web.admission import Ticket, give_back
from .web.exchange import FACE, NAME, App, Exchange, Lifespan, Message, Receive, Scope, Send
from .web.guard import Guard
from .web.keys import claim, client_ip, header, user
from .web.layers import Within
from .web.options import Rule
from .web.steps import arun

try:
    from fastapi.routing import APIRoute
except ImportError:  # Starlette alone
    APIRoute = Route  # type: ignore[misc, assignment]

__all__ = ["RateLimit", "Tidegate", "claim", "client_ip", "header", "user"]

# Where an endpoint carries its limits: a list of (Tidegate, Guard); None instead of a Guard is exempt.
MARK = "__tidegate__"

UNATTACHED = (
    "{} has a limit of a Tidegate that is not attached to the application that serves it: give it the application, "
    "Tidegate(app, …) or tg.init_app(app)"
)


class _Exchange(Exchange):
    """One request, and which Tidegate answers for it."""

    asked = False
    # Whether the default was asked for, and nothing else.
    defaulted = False

    def __init__(self, send: Send, tidegate: Tidegate, scope: Scope, receive: Receive) -> None:
        # All of `super().__init__`, which is a call more for every request.
        self._send = send
        self.limiter = tidegate.limiter
        self.scope = scope
        self.tidegate = tidegate
        self.receive = receive

    def make_request(self) -> HTTPConnection:
        if self.scope["type"] == "http":
            return Request(self.scope, self.receive, self.send)
        return WebSocket(self.scope, self.receive, self.send)

    def make_response(self, message: Message) -> Response:
        response = Response(status_code=message["status"])
        response.raw_headers = list(message.get("headers", ()))
        return response


class Denied(HTTPException):
    """Raised by a dependency that refuses. Where no Tidegate answers for it, it is still a 429."""

    def __init__(self, exchange: _Exchange, ticket: Ticket) -> None:
        super().__init__(429)
        self.exchange = exchange
        self.ticket = ticket


class Tidegate(Lifespan, Within[AsyncLimiter, Starlette]):
    """Limits of a FastAPI or Starlette application.

    default: the policy of every route without a limit of its own, and of what is no route.
    key, cost, skip, on_denied, headers, refund_when, settle, methods: what limits have that say nothing else.

    The limiter is `limiter`, or one made of `store` and the options of a limiter, which is closed when the application
    is shut down. `limit` decorates endpoints, sync and
    async, with and without a `request`.
    """

    _kind = AsyncLimiter
    _face = FACE

    def init_app(self, app: Starlette) -> None:
        """Answers for an application from now on."""
        if not isinstance(app, Starlette):
            raise ConfigError(f"Tidegate limits a FastAPI or Starlette application, not {app!r}")
        if getattr(app.state, NAME, None) is not None:
            raise ConfigError("this application has a Tidegate already")
        if app.middleware_stack is not None:
            raise ConfigError("this application has begun to serve: attach Tidegate before the first request")
        setattr(app.state, NAME, self)
        self._apps.append(app)
        app.add_exception_handler(Denied, _answer)  # type: ignore[arg-type]  # an ASGI application is a response
        build = app.build_middleware_stack
        # Around everything, also around what makes a 500 of an error: every answer has the headers.
        app.build_middleware_stack = lambda: self._around(build())  # type: ignore[method-assign]

    def _check_order(self, view: Any, decorator: str) -> None:
        if isinstance(view, BaseRoute) or not callable(view):
            raise ConfigError(f"@tg.{decorator} is for endpoints, not for {view!r}")
        if any(getattr(route, "endpoint", None) is view for app in self._apps for route in app.routes):
            raise ConfigError(
                f"@tg.{decorator} stands above the route of {_name(view)}, which is registered without it: "
                "put it below @app.get(…)"
            )

    def _name(self, view: Any) -> str:
        return _name(view)

    def _marked(self, view: Any, guard: Guard | None) -> Any:
        marks = [(self, guard)] if guard is None else [(self, guard), *getattr(view, MARK, ())]
        setattr(_inner(view), MARK, marks)
        return view

    def _around(self, inner: App) -> App:
        """Lets the messages of every answer pass through its exchange."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await self._live(inner, scope, receive, send)
                return
            if scope["type"] not in ("http", "websocket"):
                await inner(scope, receive, send)
                return
            if self._closed:
                self._open()
            scope[NAME] = exchange = _Exchange(send, self, scope, receive)
            try:
                await inner(scope, receive, self._late(exchange, receive) if self._default else exchange.send)
            finally:
                # The two hold each other: what is over goes now, not when the collector comes by.
                scope.pop(NAME, None)
                if exchange.closing:
                    await exchange.end()

        return app

    def _late(self, exchange: _Exchange, receive: Receive) -> Send:
        """The default for what is no route: another application mounted, a 404."""
        dropped = False

        async def send(message: Message) -> None:
            nonlocal dropped
            if exchange.asked or message["type"] == "websocket.close":
                if not dropped:
                    await exchange.send(message)
                return
            exchange.asked = True
            ticket = await exchange.ask(self._default)
            if ticket is not None and ticket.denied:
                dropped = True
                await exchange.refuse(ticket, receive)
            else:
                await exchange.send(message)

        return send

    async def before(self, scope: Scope, receive: Receive, exchange: _Exchange) -> bool:
        """Asks for a request whose endpoint is known. False: it was refused and answered."""
        exchange.asked = True
        place = _place(scope)
        known = self._known.get((id(place), scope.get("method")))
        guards = known[1] if known is not None else self._learn(place, scope)
        if not guards:
            return True
        ticket = await exchange.ask(guards)
        exchange.defaulted = guards is self._default
        if ticket is not None and ticket.denied:
            await exchange.refuse(ticket, receive)
            return False
        return True

    def _learn(self, place: Any, scope: Scope) -> tuple[Guard, ...]:
        endpoint, method = scope.get("endpoint"), scope.get("method")
        marks = list(_marks(endpoint, method))
        if any(tidegate is not self for tidegate, _ in marks):
            raise ConfigError(UNATTACHED.format(_name(endpoint)))
        if any(guard is None for _, guard in marks):
            guards: tuple[Guard, ...] = ()
        else:
            found = tuple(guard for _, guard in marks if guard is not None)
            guards = found or (() if _depends(place) else self._default)
        # A client may make up methods, a server has few.
        if len(self._known) < 100_000:
            self._known[id(place), method] = (place, guards)
        return guards


def _inner(endpoint: Any) -> Any:
    """Where a mark can be set: on the function of a method."""
    return getattr(endpoint, "__func__", endpoint)


def _name(endpoint: Any) -> str:
    module, name = getattr(endpoint, "__module__", ""), getattr(endpoint, "__qualname__", type(endpoint).__name__)
    return f"{module}.{name}"


def _marks(endpoint: Any, method: str | None) -> Iterable[Any]:
    """The limits of an endpoint: a function, a partial of one, or a class with a method for each verb."""
    while isinstance(endpoint, functools.partial):
        yield from getattr(endpoint, MARK, ())
        endpoint = endpoint.func
    yield from getattr(endpoint, MARK, ())
    if inspect.isclass(endpoint) and method is not None:
        yield from getattr(getattr(endpoint, method.lower(), None), MARK, ())


def _place(scope: Scope) -> Any:
    """The route, as it was included where the request found it; older Starlettes tell the endpoint and no more."""
    return scope.get("fastapi", {}).get("effective_route_context") or scope.get("route") or scope.get("endpoint")


def _places(route: Any) -> Iterable[Any]:
    """A route, or the routes of a router as they are included."""
    contexts = getattr(route, "effective_route_contexts", None)
    return (route,) if contexts is None else contexts()


def _depends(place: Any) -> bool:
    """Whether a route has a RateLimit among its dependencies, wherever they were given."""
    dependant = getattr(place, "dependant", None)
    return dependant is not None and _has_rate_limit(dependant)


def _has_rate_limit(dependant: Any) -> bool:
    return isinstance(dependant.call, RateLimit) or any(_has_rate_limit(one) for one in dependant.dependencies)


async def _answer(connection: HTTPConnection, error: Denied) -> App | None:
    if connection.scope["type"] == "websocket":
        # What is returned for a websocket is sent by newer Starlettes only.
        await error.exchange.refuse(error.ticket, error.exchange.receive)
        return None

    async def answer(scope: Scope, receive: Receive, _: Send) -> None:
        await error.exchange.refuse(error.ticket, receive)

    return answer


class RateLimit:
    """A limit as a dependency of FastAPI: of a route, a router, or an application; it is one limit for all of them.

        @app.get("/search", dependencies=[Depends(RateLimit("10/second"))])
        router = APIRouter(dependencies=[Depends(RateLimit("api", key=header("X-API-Key")))])

    The application needs a `Tidegate(app, …)`, whose limiter is asked.
    """

    def __init__(self, policy: str | Policy | Sequence[Any], **options: Any) -> None:
        self._given = (policy, options)
        Rule(policy, **options)
        self._guards: dict[int, tuple[Tidegate, Guard]] = {}

    async def __call__(self, connection: HTTPConnection) -> None:
        scope = connection.scope
        exchange: _Exchange | None = scope.get(NAME)
        if exchange is None:
            raise ConfigError("RateLimit has no limiter: attach one with Tidegate(app, store=…)")
        tidegate = exchange.tidegate
        known = self._guards.get(id(tidegate))
        if known is None or known[0] is not tidegate:
            policy, options = self._given
            rule = Rule(policy, **{**tidegate._options, "scope": self._scope(scope), **options})
            known = self._guards[id(tidegate)] = (tidegate, tidegate._guard(rule))
        if exchange.defaulted:
            # It was asked for before anybody could know of this limit, which takes its place.
            exchange.defaulted = False
            exchange.unfold()
            defaults, exchange.tickets = exchange.tickets, ()
            for default in defaults:
                default.release()
                await arun(give_back(default.charges), tidegate.limiter)
        ticket = await exchange.ask((known[1],))
        if ticket is not None and ticket.denied:
            for other in exchange.tickets:
                if other is not ticket:
                    other.release()
                    await arun(give_back(other.charges), tidegate.limiter)
            raise Denied(exchange, ticket)

    def _scope(self, scope: Scope) -> str:
        """One limit for all routes that have this object: named by the first, the same in every process."""
        app = scope.get("app")
        path: str = getattr(scope.get("route"), "path", "")
        for route in getattr(app, "routes", ()):
            for place in _places(route):
                dependant = getattr(place, "dependant", None)
                if dependant is not None and any(one.call is self for one in dependant.dependencies):
                    methods = ",".join(sorted(getattr(place, "methods", None) or ()))
                    return f"{methods} {getattr(place, 'path_format', path)}"
        return path


# FastAPI looks for names in annotations where functions keep them; an instance has none.
RateLimit.__call__.__annotations__["connection"] = HTTPConnection


def _watched(handle: Any) -> Any:
    """A route's way to its endpoint, by way of its limits.

    Starlette and FastAPI have changed how they find a route more than once; that the route found is handed the request
    has not.
    """

    @functools.wraps(handle)
    async def handled(self: BaseRoute, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: _Exchange | None = scope.get(NAME)
        if exchange is None:
            if getattr(scope.get("endpoint"), MARK, None):
                raise ConfigError(UNATTACHED.format(_name(scope["endpoint"])))
        elif not exchange.asked and not await exchange.tidegate.before(scope, receive, exchange):
            return
        await handle(self, scope, receive, send)

    handled.__tidegate__ = True  # type: ignore[attr-defined]
    return handled


for _class in (Route, WebSocketRoute, APIRoute):
    if "handle" in vars(_class) and not hasattr(_class.handle, MARK):
        _class.handle = _watched(_class.handle)  # type: ignore[method-assign]
