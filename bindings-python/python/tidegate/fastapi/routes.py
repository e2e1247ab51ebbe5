"""Reads the routes and endpoints of Starlette and FastAPI, and adds the check of limits to the classes of routes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.routing import Host, Mount, Route, WebSocketRoute

from ..errors import ConfigError
from ..web.exchange import NAME, App, Receive, Scope, Send
from ..web.functions import qualified_name, verb_of
from ..web.layers import LIMITS, MAX_LAYERS, unattached, with_wrapped_apps
from ..web.limit import DeclaredLimit

try:
    from fastapi.exception_handlers import http_exception_handler as http_exception_handler
    from fastapi.exceptions import HTTPException as HTTPException
    from fastapi.routing import APIRoute, APIWebSocketRoute
except ImportError:  # Starlette alone
    from starlette.exceptions import HTTPException as HTTPException  # type: ignore[assignment]

    http_exception_handler = None  # type: ignore[assignment]
    APIRoute, APIWebSocketRoute = Route, WebSocketRoute  # type: ignore[misc, assignment]

# The endpoints that have a route, and a reference to the route that was made last.
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

    def carried(self) -> Any:
        """Returns the endpoint with one more limit. An exemption overrides all of them."""
        # The function of a method belongs to all objects of its class.
        view = functools.partial(self.view) if inspect.ismethod(self.view) else self.view
        try:
            setattr(view, LIMITS, [self, *getattr(view, LIMITS, ())])
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
        places.append(getattr(places[-1], verb_of(places[-1], method), None))
    return [limit for place in places for limit in getattr(place, LIMITS, ())]


def allows(route: Any, endpoint: Any, method: str | None) -> bool:
    """True if a route serves a method. It answers 405 to others."""
    methods = getattr(getattr(route, "starlette_route", None) or route, "methods", None)
    if method is not None and methods:
        return method in methods
    is_class = inspect.isclass(endpoint) and issubclass(endpoint, HTTPEndpoint)
    return method is None or not is_class or hasattr(endpoint, verb_of(endpoint, method))


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


def is_registered(endpoint: Any, apps: Iterable[Any]) -> bool:
    """True if the applications have a route of this endpoint, or the last route that was made is one."""
    known = [_latest and _latest(), *(route for _, route in routes_of(apps))]
    return any(getattr(route, "endpoint", None) is endpoint for route in known)


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
        if dependency in dependencies_of(one, type(dependency)):
            return f"{path} {qualified_name(one.endpoint)}"
    return path_of(route)


def path_of(route: Any) -> str:
    """Returns the path of a route, as its router knows it."""
    # The `path_format` of a mount has a parameter for the rest of the path.
    first, other = ("path", "host") if _is_mount(route) else ("path_format", "path")
    return str(getattr(route, first, None) or getattr(route, other, ""))


def _is_mount(route: Any) -> bool:
    return getattr(route, "app", None) is not None and not hasattr(route, "endpoint")


def routes_of(apps: Iterable[Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Returns all routes and mounts of applications and of the applications mounted in them, with their paths."""
    for app in apps:
        for route in _own_routes(app):
            # The routes of an included router are its contexts.
            contexts = getattr(route, "effective_route_contexts", lambda route=route: (route,))()
            for one in (getattr(context, "starlette_route", None) or context for context in contexts):
                path = prefix + path_of(one)
                yield path, one
                if _is_mount(one) and depth < MAX_LAYERS:
                    yield from routes_of((one.app,), path, depth + 1)


def mounted_in(app: Any) -> Iterator[Any]:
    """Returns the applications that are mounted in an application, at any depth."""
    return (route.app for _, route in routes_of([app]) if _is_mount(route))


def _own_routes(app: Any) -> Iterable[Any]:
    return next((routes for one in with_wrapped_apps(app) if (routes := getattr(one, "routes", None))), ())


def _included_route(route: Any, scope: Scope) -> Any:
    """Returns the route that serves a request, as a router has included it."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    if context is not None and (context.original_route is route or context.starlette_route is route):
        return context
    return route


def dependencies_of(route: Any, kind: type[Any]) -> Iterator[Any]:
    """Returns the dependencies of a route that are objects of a class, at any depth."""
    waiting = [getattr(getattr(route, "starlette_route", None) or route, "dependant", None)]
    for dependant in filter(None, waiting):
        waiting.extend(dependant.dependencies)
        yield from (one.call for one in dependant.dependencies if isinstance(one.call, kind))


def _with_check(handle: Any) -> Any:
    """Returns the method by which a route handles a request, with a check of its limits before it.

    A mounted application with routes has the limits of these routes checked instead.
    """

    @functools.wraps(handle)
    async def handle_checked(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, is_mount = scope.get(NAME), isinstance(self, (Mount, Host))
        if exchange is None:
            if not is_mount and getattr(scope.get("endpoint"), LIMITS, None):
                raise unattached(qualified_name(scope["endpoint"]))
        elif (exchange.mounted and not is_mount) or not (exchange.checked or (is_mount and _own_routes(self.app))):
            if await exchange.answers(self if is_mount else _included_route(self, scope), scope, receive, send):
                return
            exchange.mounted = is_mount
        await handle(self, scope, receive, send)

    return handle_checked


def _gate(app: App, route: Any) -> Any:
    """Returns an application that checks a route inside its own middleware, so that the middleware sees the refusal."""
    gate: Any = functools.partial(_with_check(lambda _, *request: app(*request)), route)
    # The routes of a mounted application are found through it.
    gate.app = app
    return gate


def _with_note(init: Any) -> Any:
    """Returns the constructor of a route, with a note that the endpoint, or the mounted application, has a route."""

    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if middleware := kwargs.get("middleware"):
            kwargs["middleware"] = [*middleware, Middleware(_gate, route=self)]
            handle = type(self).handle
            if hasattr(handle, LIMITS):
                # The original method, without the check.
                self.handle = functools.partial(handle.__wrapped__, self)
        init(self, *args, **kwargs)
        mark_routed(self, self.app if _is_mount(self) else self.endpoint)

    return noting


def patch_routes() -> None:
    """Patches the classes of routes, once."""
    for kind in {Route, WebSocketRoute, APIRoute, APIWebSocketRoute, Mount, Host}:
        for method, around in (("handle", _with_check), ("__init__", _with_note)):
            original = vars(kind).get(method)
            # A second import of this module finds its own patches.
            if original is not None and not hasattr(original, LIMITS):
                patched = around(original)
                setattr(patched, LIMITS, True)
                setattr(kind, method, patched)
