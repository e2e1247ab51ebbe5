"""What `tidegate.fastapi` reads of the routes and endpoints of Starlette and FastAPI."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Host, Mount, Route, Router, WebSocketRoute

from ..errors import ConfigError
from ..web.declared_limit import DeclaredLimit
from ..web.exchange import NAME, App, Receive, Scope, Send
from .exchange import StarletteExchange, respond_to

# The attribute in which an endpoint carries its limits: a list of EndpointLimit.
LIMITS = "__tidegate__"
# How deep applications are mounted in each other, at most.
MAX_DEPTH = 16

# The endpoints that have a route, and the route that was made last.
_routed: weakref.WeakSet[Any] = weakref.WeakSet()
_latest: Any = None


class EndpointLimit:
    """A limit that a decorator has given to an endpoint. None for a declared limit: an exemption."""

    __slots__ = ("declared", "owner", "routed", "view")

    def __init__(self, owner: object, declared: DeclaredLimit | None, view: Any) -> None:
        self.owner = owner
        self.declared = declared
        self.view = view
        # Whether there is a route that finds it. A function may have one in another application already.
        self.routed = has_route(view)


def with_limit(view: Any, limit: EndpointLimit) -> Any:
    """The endpoint with one more limit; an exemption replaces them."""
    if inspect.ismethod(view):
        # The function of a method belongs to all objects of its class.
        view = functools.partial(view)
    try:
        setattr(view, LIMITS, [limit, *getattr(view, LIMITS, ())])
    except (AttributeError, TypeError):
        raise ConfigError(
            f"{name_of(view)} cannot carry a limit: write a function that calls it, and limit that"
        ) from None
    return view


def limits_of(endpoint: Any, method: str | None) -> Iterator[EndpointLimit]:
    """The limits of an endpoint: a function, a partial of one, or a class with a method for each verb."""
    while isinstance(endpoint, functools.partial):
        yield from getattr(endpoint, LIMITS, ())
        endpoint = endpoint.func
    yield from getattr(endpoint, LIMITS, ())
    if inspect.isclass(endpoint) and method is not None:
        yield from getattr(_verb(endpoint, method), LIMITS, ())


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
    return not _is_endpoint_class(endpoint) or _verb(endpoint, method) is not None


def _is_endpoint_class(endpoint: Any) -> bool:
    return inspect.isclass(endpoint) and issubclass(endpoint, HTTPEndpoint)


def mark_routed(route: Any, endpoint: Any) -> None:
    """Notes that an endpoint has a route."""
    global _latest
    _latest = weakref.ref(route)
    found = list(limits_of(endpoint, None))
    if inspect.isclass(endpoint):
        for verb in ("get", "head", "post", "put", "patch", "delete", "options", "query"):
            found.extend(getattr(getattr(endpoint, verb, None), LIMITS, ()))
    for one in found:
        one.routed = True
    try:
        _routed.add(endpoint)
    except TypeError:  # an object without a hash
        return


def has_route(endpoint: Any) -> bool:
    """Whether an endpoint has a route already."""
    try:
        return endpoint in _routed
    except TypeError:
        return False


def has_latest_route(endpoint: Any) -> bool:
    """Whether the route that was made last is that of this endpoint: its decorator stands below."""
    route = None if _latest is None else _latest()
    return route is not None and getattr(route, "endpoint", None) is endpoint


def name_of(endpoint: Any) -> str:
    """The name of an endpoint: the same in every process."""
    while isinstance(endpoint, functools.partial):
        endpoint = endpoint.func
    named = endpoint if hasattr(endpoint, "__qualname__") else type(endpoint)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def place_of(view: Any, endpoint: Any, apps: Iterable[Any], path: str) -> str:
    """The name under which a notation at a view counts: the same in every process, and after a deployment.

    Functions that a function makes, lambdas and objects may have one name: the path of their first route is part of it.
    """
    name = name_of(view)
    if (inspect.isfunction(view) or inspect.isclass(view)) and "<" not in name:
        return name
    found = (where for where, route in routes_of(apps) if getattr(route, "endpoint", None) is endpoint)
    return f"{name} {next(found, path)}"


def place_of_dependency(dependency: object, apps: Iterable[Any], route: Any) -> str:
    """The place of a dependency: that of the first route that has it."""
    for path, one in routes_of(apps):
        if _depends(one, lambda call: call is dependency):
            return f"{path} {name_of(one.endpoint)}"
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
        for route in _included(_own_routes(app)):
            path = prefix + path_of(route)
            if _is_mount(route):
                if depth < MAX_DEPTH:
                    yield from routes_of((route.app,), path, depth + 1)
            else:
                yield path, route


def serves_routes(app: Any) -> bool:
    """Whether an application has routes, itself or behind its middleware."""
    return bool(_own_routes(app))


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
            found: Iterable[Any] = routes
            return found
        # Where middleware keeps what it wraps.
        app = getattr(app, "app", None)
    return ()


def _included(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes themselves, and those of included routers."""
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)
        if contexts is None:
            yield route
            continue
        for context in contexts():
            yield getattr(context, "starlette_route", None) or context


def route_of(route: Any, scope: Scope) -> Any:
    """The route that serves a request, as a router has included it."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    if context is not None and (context.original_route is route or context.starlette_route is route):
        return context
    return route


def depends_on(route: Any, kind: type) -> bool:
    """Whether an object of a class is among the dependencies of a route, at any depth."""
    return _depends(getattr(route, "starlette_route", None) or route, lambda call: isinstance(call, kind))


def _depends(route: Any, matches: Any) -> bool:
    dependant = getattr(route, "dependant", None)
    return dependant is not None and _contains(dependant, matches)


def dependencies_of(route: Any, kind: type) -> Iterator[Any]:
    """The objects of a class among the dependencies of a route, at any depth."""
    waiting = [getattr(route, "dependant", None)]
    while waiting:
        dependant = waiting.pop()
        if dependant is not None:
            waiting.extend(dependant.dependencies)
            if isinstance(dependant.call, kind):
                yield dependant.call


def _contains(dependant: Any, matches: Any) -> bool:
    return any(matches(one.call) or _contains(one, matches) for one in dependant.dependencies)


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
    """Checks a mounted application when it is called. One with routes has those checked."""

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
