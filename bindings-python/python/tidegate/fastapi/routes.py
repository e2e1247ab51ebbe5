"""What `tidegate.fastapi` reads of the routes and endpoints of Starlette and FastAPI."""

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

# How deep applications are mounted in each other, at most.
MAX_DEPTH = 16

# The endpoints that have a route, and the route that was made last.
_routed: weakref.WeakSet[Any] = weakref.WeakSet()
_latest: Any = None


class EndpointLimit:
    """A limit that a decorator has given to an endpoint. None for a declared limit: an exemption."""

    def __init__(self, owner: object, declared: DeclaredLimit | None, view: Any) -> None:
        self.owner, self.declared, self.view = owner, declared, view
        # Whether there is a route that finds it. A function may have one in another application already.
        self.routed = False
        with contextlib.suppress(TypeError):  # an object without a hash
            self.routed = view in _routed


def with_limit(view: Any, limit: EndpointLimit) -> Any:
    """The endpoint with one more limit; an exemption replaces them."""
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
    """The limits of an endpoint: a function, a partial of one, or a class with a method for each verb."""
    places = [endpoint]
    while isinstance(places[-1], functools.partial):
        places.append(places[-1].func)
    if inspect.isclass(places[-1]) and method is not None:
        places.append(_verb(places[-1], method))
    return [limit for place in places for limit in getattr(place, LIMITS, ())]


def _verb(endpoint: type, method: str) -> Any:
    """The method of an endpoint class that serves an HTTP method."""
    found = getattr(endpoint, method.lower(), None)
    return getattr(endpoint, "get", None) if found is None and method == "HEAD" else found


def allows(route: Any, endpoint: Any, method: str | None) -> bool:
    """Whether a route serves a method; it answers 405 to others."""
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
    """Whether the route that was made last is that of this endpoint: its decorator stands below."""
    return _latest is not None and getattr(_latest(), "endpoint", None) is endpoint


def place_of(view: Any, endpoint: Any, apps: Iterable[Any], path: str) -> str:
    """The name under which a notation at a view counts: the same in every process, and after a deployment.

    Functions that a function makes, lambdas and objects may have one name: the path of their first route is part of it.
    """
    name = qualified_name(view)
    if (inspect.isfunction(view) or inspect.isclass(view)) and "<" not in name:
        return name
    found = (where for where, route in routes_of(apps) if getattr(route, "endpoint", None) is endpoint)
    return f"{name} {next(found, path)}"


def place_of_dependency(dependency: object, apps: Iterable[Any], route: Any) -> str:
    """The place of a dependency: that of the first route that has it."""
    for path, one in routes_of(apps):
        if any(call is dependency for call in dependencies_of(one)):
            return f"{path} {qualified_name(one.endpoint)}"
    return path_of(route)


def path_of(route: Any) -> str:
    """The path of a route, as its router knows it."""
    if _is_mount(route):
        # Its format has a parameter for the rest of the path.
        return str(getattr(route, "path", None) or getattr(route, "host", ""))
    return str(getattr(route, "path_format", None) or getattr(route, "path", ""))


def _is_mount(route: Any) -> bool:
    return getattr(route, "app", None) is not None and not hasattr(route, "endpoint")


def routes_of(apps: Iterable[Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """All routes of applications, also of those that are mounted, with their paths."""
    for app in apps:
        for route in _own_routes(app):
            # Those of an included router are its contexts.
            contexts = getattr(route, "effective_route_contexts", lambda route=route: (route,))()
            for one in (getattr(context, "starlette_route", None) or context for context in contexts):
                path = prefix + path_of(one)
                if not _is_mount(one):
                    yield path, one
                elif depth < MAX_DEPTH:
                    yield from routes_of((one.app,), path, depth + 1)


def mounted_in(app: Any, depth: int = 0) -> Iterator[Any]:
    """The applications that are mounted in an application, at any depth."""
    for route in _own_routes(app):
        if _is_mount(route) and depth < MAX_DEPTH:
            yield route.app
            yield from mounted_in(route.app, depth + 1)


def has_routes(view: Any) -> bool:
    """Whether a view is an application or a router, itself or behind its middleware. It may get its routes later."""
    for _ in range(MAX_DEPTH):
        if isinstance(view, (Starlette, Router)):
            return True
        view = getattr(view, "app", None)
    return False


def _own_routes(app: Any) -> Iterable[Any]:
    for _ in range(MAX_DEPTH):
        if routes := getattr(app, "routes", None):
            return routes  # type: ignore[no-any-return]
        # Where middleware keeps what it wraps.
        app = getattr(app, "app", None)
    return ()


def _included_route(route: Any, scope: Scope) -> Any:
    """The route that serves a request, as a router has included it."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    if context is not None and (context.original_route is route or context.starlette_route is route):
        return context
    return route


def dependencies_of(route: Any) -> Iterator[Any]:
    """What is called for the dependencies of a route, at any depth."""
    waiting = [getattr(getattr(route, "starlette_route", None) or route, "dependant", None)]
    for dependant in filter(None, waiting):
        waiting.extend(dependant.dependencies)
        yield from (one.call for one in dependant.dependencies)


def _with_check(handle: Any, is_mount: bool = False) -> Any:
    """The method by which a route handles a request, preceded by the check of its limits.

    A mounted application with routes has those checked.
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


def _patch(kind: type, attribute: str, with_check: Any) -> None:
    for method, around in (("handle", with_check), ("__init__", lambda init: _with_note(init, attribute, with_check))):
        original = vars(kind).get(method)
        # A module that is imported anew finds its own work.
        if original is not None and not hasattr(original, LIMITS):
            patched = around(original)
            setattr(patched, LIMITS, True)
            setattr(kind, method, patched)


def patch_routes() -> None:
    """Changes the classes of routes, once."""
    for kind in {Route, WebSocketRoute, APIRoute, APIWebSocketRoute}:
        _patch(kind, "endpoint", _with_check)
    for kind in (Mount, Host):
        _patch(kind, "app", functools.partial(_with_check, is_mount=True))
