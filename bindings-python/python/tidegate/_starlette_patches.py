"""Has the routes of Starlette and FastAPI check their limits.

Both have changed more than once how they find a route. That a route is made with its endpoint, and is then called with
the request, has not changed.
"""

from __future__ import annotations

import functools
from typing import Any

from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Host, Mount, Route, WebSocketRoute

from ._starlette_exchange import StarletteExchange
from ._starlette_refusal import respond_to
from ._starlette_routes import LIMITS, mark_routed, name_of, route_of, serves_routes
from .errors import ConfigError
from .web.exchange import NAME
from .web.lifespan import App, Receive, Scope, Send

try:
    from fastapi.routing import APIRoute, APIWebSocketRoute
except ImportError:  # Starlette alone
    APIRoute, APIWebSocketRoute = Route, WebSocketRoute  # type: ignore[misc, assignment]

UNATTACHED = (
    "{} has a limit of a Tidegate that is not attached to the application that serves it: give it the application, "
    "Tidegate(app, …) or tg.init_app(app)"
)


def _exchange_of(scope: Scope) -> StarletteExchange | None:
    found = scope.get(NAME)
    return found if isinstance(found, StarletteExchange) else None


def _with_check(handle: Any) -> Any:
    """The method by which a route handles a request, preceded by the check of its limits."""

    @functools.wraps(handle)
    async def handle_checked(self: BaseRoute, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _exchange_of(scope)
        if exchange is None:
            if getattr(scope.get("endpoint"), LIMITS, None):
                raise ConfigError(UNATTACHED.format(name_of(scope["endpoint"])))
        elif not exchange.checked or exchange.mounted:
            try:
                if limits := exchange.tidegate.limits_for(route_of(self, scope), scope, exchange):
                    await exchange.enforce(limits)
            except Exception as error:
                await respond_to(error, scope, receive, send)
                return
            exchange.mounted = False
        await handle(self, scope, receive, send)

    return handle_checked


def _with_mount_check(handle: Any) -> Any:
    """The same for a mounted application. One with routes has them checked."""

    @functools.wraps(handle)
    async def handle_checked(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _exchange_of(scope)
        if exchange is not None and not exchange.checked and not serves_routes(self.app):
            try:
                if limits := exchange.tidegate.limits_for(self, scope, exchange):
                    await exchange.enforce(limits)
            except Exception as error:
                await respond_to(error, scope, receive, send)
                return
            exchange.mounted = True
        await handle(self, scope, receive, send)

    return handle_checked


class _Gate:
    """Checks a route or mount with middleware of its own inside that middleware, which then sees the refusal."""

    def __init__(self, app: App, route: Any, with_check: Any) -> None:
        # The routes of a mounted application are found through it.
        self.app = app

        async def handle(_: Any, scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

        self._handle = functools.partial(with_check(handle), route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(scope, receive, send)


def _with_note(init: Any, attribute: str, with_check: Any) -> Any:
    """The constructor of a route, which notes that its endpoint has one."""

    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if middleware := kwargs.get("middleware"):
            kwargs["middleware"] = [*middleware, Middleware(_Gate, route=self, with_check=with_check)]
            handle = type(self).handle
            if hasattr(handle, LIMITS):
                # As it was before it checked.
                self.handle = functools.partial(handle.__wrapped__, self)
        init(self, *args, **kwargs)
        mark_routed(self, getattr(self, attribute, None))

    return noting


def _patch(kind: type, method: str, around: Any) -> None:
    original = vars(kind).get(method)
    # A module that is imported anew finds its own work.
    if original is not None and not hasattr(original, LIMITS):
        patched = around(original)
        setattr(patched, LIMITS, True)
        setattr(kind, method, patched)


def patch_routes() -> None:
    """Changes the classes of routes, once."""
    for kind in {Route, WebSocketRoute, APIRoute, APIWebSocketRoute}:
        _patch(kind, "handle", _with_check)
        _patch(kind, "__init__", lambda init: _with_note(init, "endpoint", _with_check))
    for kind in (Mount, Host):
        _patch(kind, "handle", _with_mount_check)
        _patch(kind, "__init__", lambda init: _with_note(init, "app", _with_mount_check))
