"""What `tidegate.fastapi` reads of the routes of Starlette and FastAPI."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any

from .web.lifespan import Scope

# The attribute in which an endpoint carries its limits: a list of (Tidegate, BoundLimit); None for a limit exempts it.
LIMITS = "__tidegate__"


def set_limits(endpoint: Any, limits: list[Any]) -> None:
    """Sets the limits of an endpoint; those of a method are kept by its function."""
    setattr(getattr(endpoint, "__func__", endpoint), LIMITS, limits)


def limits_of(endpoint: Any, method: str | None) -> Iterable[Any]:
    """The limits of an endpoint: a function, a partial of one, or a class with a method for each verb."""
    while isinstance(endpoint, functools.partial):
        yield from getattr(endpoint, LIMITS, ())
        endpoint = endpoint.func
    yield from getattr(endpoint, LIMITS, ())
    if inspect.isclass(endpoint) and method is not None:
        yield from getattr(getattr(endpoint, method.lower(), None), LIMITS, ())


def name_of(endpoint: Any) -> str:
    """The name of an endpoint: the same in every process."""
    module, name = getattr(endpoint, "__module__", ""), getattr(endpoint, "__qualname__", type(endpoint).__name__)
    return f"{module}.{name}"


def route_of(scope: Scope) -> Any:
    """The route of a request, as its router included it; older Starlettes only tell the endpoint."""
    return scope.get("fastapi", {}).get("effective_route_context") or scope.get("route") or scope.get("endpoint")


def included_routes(route: Any) -> Iterable[Any]:
    """The route itself, or all routes of an included router."""
    contexts = getattr(route, "effective_route_contexts", None)
    return (route,) if contexts is None else contexts()


def depends_on(route: Any, kind: type) -> bool:
    """Whether an object of a class is among the dependencies of a route, at any depth."""
    dependant = getattr(route, "dependant", None)
    return dependant is not None and _contains(dependant, kind)


def _contains(dependant: Any, kind: type) -> bool:
    return isinstance(dependant.call, kind) or any(_contains(one, kind) for one in dependant.dependencies)


def first_route_with(dependency: object, scope: Scope) -> str:
    """The first route of the application that has this dependency: the same in every process."""
    app = scope.get("app")
    path: str = getattr(scope.get("route"), "path", "")
    for route in getattr(app, "routes", ()):
        for included in included_routes(route):
            dependant = getattr(included, "dependant", None)
            if dependant is not None and any(one.call is dependency for one in dependant.dependencies):
                methods = ",".join(sorted(getattr(included, "methods", None) or ()))
                return f"{methods} {getattr(included, 'path_format', path)}"
    return path
