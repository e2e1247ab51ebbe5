"""Reads the routes and endpoints of Starlette and FastAPI, and adds the check of limits to the classes of routes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

from ..errors import ConfigError
from ..web.exchange import NAME, App, Receive, Scope, Send
from ..web.functions import qualified_name
from ..web.layers import LIMITS, unattached
from ..web.limit import DeclaredLimit

try:
    from fastapi.routing import APIRoute, APIWebSocketRoute
except ImportError:  # Starlette alone
    APIRoute, APIWebSocketRoute = Route, WebSocketRoute  # type: ignore[misc, assignment]

# The greatest depth to which mounted applications are searched.
MAX_DEPTH = 16

# The endpoints that have a route, and the route that was made last.
_routed: weakref.WeakSet[Any] = weakref.WeakSet()
_latest: Any = None


class EndpointLimit:
    """A limit that a decorator has given to an endpoint. If `declared` is None, it is an exemption."""

    def __init__(self, owner: object, declared: DeclaredLimit | None, view: Any) -> None:
        self.owner, self.declared, self.view = owner, declared, view
        # True if the endpoint has a route. A function may have one in another application already.
        self.routed = False
        with contextlib.suppress(TypeError):  # an object without a hash
            self.routed = view in _routed


def with_limit(view: Any, limit: EndpointLimit) -> Any:
    """Returns the endpoint with one more limit. An exemption overrides all of them."""
    if inspect.ismethod(view):
        # The function of a method belongs to all objects of its class.
        view = functools.partial(view)
    try:
        setattr(view, LIMITS, [limit, *getattr(view, LIMITS, ())])
    except (AttributeError, TypeError):
        told = f"{qualified_name(view)} cannot carry a limit: write a function that calls it, and limit that"
        raise ConfigError(told) from None
    return view


def limits_of(endpoint: Any, method: str | None) -> list[EndpointLimit]:
    """Returns the limits of an endpoint: a function, a partial of one, or a class with a method for each verb."""
    places = [endpoint]
    while isinstance(places[-1], functools.partial):
        places.append(places[-1].func)
    if inspect.isclass(places[-1]) and method is not None:
        places.append(_verb(places[-1], method))
    return [limit for place in places for limit in getattr(place, LIMITS, ())]


def _verb(endpoint: type, method: str) -> Any:
    """Returns the method of an endpoint class that serves an HTTP method."""
    found = getattr(endpoint, method.lower(), None)
    return getattr(endpoint, "get", None) if found is None and method == "HEAD" else found


def allows(route: Any, endpoint: Any, method: str | None) -> bool:
    """True if a route serves a method. It answers 405 to others."""
    if method is None:
        return True
    methods = getattr(getattr(route, "starlette_route", None) or route, "methods", None)
    if methods:
        return method in methods
    is_class = inspect.isclass(endpoint) and issubclass(endpoint, HTTPEndpoint)
    return not is_class or _verb(endpoint, method) is not None


def mark_routed(route: Any, endpoint: Any) -> None:
    """Notes that an endpoint has a route."""
    global _latest
    _latest = weakref.ref(route)
    verbs = ("get", "head", "post", "put", "patch", "delete", "options", "query") if inspect.isclass(endpoint) else ()
    for place in [endpoint, *(getattr(endpoint, verb, None) for verb in verbs)]:
        for limit in limits_of(place, None):
            limit.routed = True
    with contextlib.suppress(TypeError):  # an object without a hash
        _routed.add(endpoint)


def has_latest_route(endpoint: Any) -> bool:
    """True if the last route that was made is the route of this endpoint. Then its decorator stands below."""
    return _latest is not None and getattr(_latest(), "endpoint", None) is endpoint


def place_of(view: Any, endpoint: Any, apps: Iterable[Any], path: str) -> str:
    """Returns the name under which a notation at a view counts. It is the same in every process and deployment.

    Inner functions, lambdas and objects may share one name, so the path of their first route is part of it.
    """
    name = qualified_name(view)
    if (inspect.isfunction(view) or inspect.isclass(view)) and "<" not in name:
        return name
    found = (where for where, route in routes_of(apps) if getattr(route, "endpoint", None) is endpoint)
    return f"{name} {next(found, path)}"


def place_of_dependency(dependency: object, apps: Iterable[Any], route: Any) -> str:
    """Returns the place of a dependency: the first route that has it."""
    for path, one in routes_of(apps):
        if any(call is dependency for call in dependencies_of(one)):
            return f"{path} {qualified_name(one.endpoint)}"
    return path_of(route)


def path_of(route: Any) -> str:
    """Returns the path of a route, as its router knows it."""
    if _is_mount(route):
        # The `path_format` of a mount has a parameter for the rest of the path.
        return str(getattr(route, "path", None) or getattr(route, "host", ""))
    return str(getattr(route, "path_format", None) or getattr(route, "path", ""))


def _is_mount(route: Any) -> bool:
    return getattr(route, "app", None) is not None and not hasattr(route, "endpoint")


def routes_of(apps: Iterable[Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Returns all routes of applications and of the applications mounted in them, with their paths."""
    for app in apps:
        for route in _own_routes(app):
            # The routes of an included router are its contexts.
            contexts = getattr(route, "effective_route_contexts", lambda route=route: (route,))()
            for one in (getattr(context, "starlette_route", None) or context for context in contexts):
                path = prefix + path_of(one)
                if not _is_mount(one):
                    yield path, one
                elif depth < MAX_DEPTH:
                    yield from routes_of((one.app,), path, depth + 1)


def mounted_in(app: Any, depth: int = 0) -> Iterator[Any]:
    """Returns the applications that are mounted in an application, at any depth."""
    for route in _own_routes(app):
        if _is_mount(route) and depth < MAX_DEPTH:
            yield route.app
            yield from mounted_in(route.app, depth + 1)


def has_routes(view: Any) -> bool:
    """True if a view is an application or a router, or middleware around one. It may get its routes later."""
    for _ in range(MAX_DEPTH):
        if isinstance(view, (Starlette, Router)):
            return True
        view = getattr(view, "app", None)
    return False


def _own_routes(app: Any) -> Iterable[Any]:
    for _ in range(MAX_DEPTH):
        if routes := getattr(app, "routes", None):
            return routes  # type: ignore[no-any-return]
        # Middleware keeps the wrapped application here.
        app = getattr(app, "app", None)
    return ()


def _included_route(route: Any, scope: Scope) -> Any:
    """Returns the route that serves a request, as a router has included it."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    if context is not None and (context.original_route is route or context.starlette_route is route):
        return context
    return route


def dependencies_of(route: Any) -> Iterator[Any]:
    """Returns the callables of the dependencies of a route, at any depth."""
    waiting = [getattr(getattr(route, "starlette_route", None) or route, "dependant", None)]
    for dependant in filter(None, waiting):
        waiting.extend(dependant.dependencies)
        yield from (one.call for one in dependant.dependencies)


def _with_check(handle: Any, is_mount: bool = False) -> Any:
    """Returns the method by which a route handles a request, with a check of its limits before it.

    A mounted application with routes has the limits of these routes checked instead.
    """

    @functools.wraps(handle)
    async def handle_checked(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope.get(NAME)
        if exchange is None:
            if not is_mount and getattr(scope.get("endpoint"), LIMITS, None):
                raise unattached(qualified_name(scope["endpoint"]))
        elif (exchange.mounted and not is_mount) or not (exchange.checked or (is_mount and _own_routes(self.app))):
            if await exchange.answers(self if is_mount else _included_route(self, scope), scope, receive, send):
                return
            exchange.mounted = is_mount
        await handle(self, scope, receive, send)

    return handle_checked


class _Gate:
    """Checks a route or mount inside its own middleware, so that the middleware sees the refusal."""

    def __init__(self, app: App, route: Any, with_check: Any) -> None:
        # The routes of a mounted application are found through it.
        self.app = app

        async def handle(_: Any, scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

        self._handle = functools.partial(with_check(handle), route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(scope, receive, send)


def _with_note(init: Any, attribute: str, with_check: Any) -> Any:
    """Returns the constructor of a route, with a note that the endpoint has a route."""

    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if middleware := kwargs.get("middleware"):
            kwargs["middleware"] = [*middleware, Middleware(_Gate, route=self, with_check=with_check)]
            handle = type(self).handle
            if hasattr(handle, LIMITS):
                # The original method, without the check.
                self.handle = functools.partial(handle.__wrapped__, self)
        init(self, *args, **kwargs)
        mark_routed(self, getattr(self, attribute, None))

    return noting


def _patch(kind: type, attribute: str, with_check: Any) -> None:
    for method, around in (("handle", with_check), ("__init__", lambda init: _with_note(init, attribute, with_check))):
        original = vars(kind).get(method)
        # A second import of this module finds its own patches.
        if original is not None and not hasattr(original, LIMITS):
            patched = around(original)
            setattr(patched, LIMITS, True)
            setattr(kind, method, patched)


def patch_routes() -> None:
    """Patches the classes of routes, once."""
    for kind in {Route, WebSocketRoute, APIRoute, APIWebSocketRoute}:
        _patch(kind, "endpoint", _with_check)
    for kind in (Mount, Host):
        _patch(kind, "app", functools.partial(_with_check, is_mount=True))
