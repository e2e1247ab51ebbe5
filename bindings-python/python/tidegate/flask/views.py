"""What `tidegate.flask` reads of the views of an application."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Iterator
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View

from ..errors import ConfigError
from ..web.bound_limit import BoundLimit
from ..web.declared_limit import DeclaredLimit
from ..web.functions import with_wrapped

# The attribute in which a view carries its limits: a list of (Tidegate, DeclaredLimit); None for a limit exempts it.
LIMITS = "__tidegate__"


class ViewLimits:
    """The limits of one endpoint and method."""

    __slots__ = ("checked", "limits")

    def __init__(self, limits: tuple[BoundLimit, ...], checked: frozenset[DeclaredLimit]) -> None:
        self.limits = limits
        # What a view that runs need not check any more. Limits that do not apply to the request are among these.
        self.checked = checked


class FoundLimits:
    """The limits that are written at a view, at its class, and at its blueprints, each with its place."""

    def __init__(self, owner: object, app: Flask, endpoint: str, request: flask.Request) -> None:
        self.exempt = False
        self.own: list[tuple[DeclaredLimit, str]] = []
        self._owner = owner
        for view in _views(app, endpoint):
            self._add(view, endpoint)
            if (view_class := getattr(view, "view_class", None)) is not None:
                self._add(view_class, endpoint)
                name = _handler_name(view_class, request.method)
                for one in _wrapping(getattr(view_class, name, None)):
                    self._add(one, f"{endpoint}.{name}")
        at_view = bool(self.own)
        for name in request.blueprints:
            # A view of an exempt blueprint may still have a limit of its own.
            self._add(app.blueprints[name], f"{name}.*", exempts=not at_view)

    def _add(self, written_at: Any, place: str, *, exempts: bool = True) -> None:
        for owner, declared in getattr(written_at, LIMITS, ()):
            if declared is None:
                self.exempt = self.exempt or exempts
            elif owner is self._owner and all(declared is not known for known, _ in self.own):
                self.own.append((declared, place))


class DecoratedViews:
    """The views that were decorated, to find those that are registered without their limits."""

    def __init__(self) -> None:
        self._limited: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()

    def add(self, view: Any, limited: Any) -> None:
        """Remembers a view and what its decorator returned."""
        # Some objects can be neither referred to nor hashed.
        with contextlib.suppress(TypeError):
            self._limited.setdefault(view, []).append(weakref.ref(limited))

    def check(self, app: Flask, endpoint: str) -> None:
        """Raises when the view of an endpoint was limited above its route, so that no request can reach the limit."""
        view = app.view_functions[endpoint]
        try:
            limited = [reference() for reference in self._limited.get(view, ())]
        except TypeError:
            return
        if not limited or any(getattr(view, LIMITS, ())):
            return
        reached = {id(one) for registered in app.view_functions.values() for one in _wrapping(registered)}
        if all(one is None or id(one) not in reached for one in limited):
            raise _above_route(view, "limit")


class FunctionPlaces:
    """The functions that are no views and have limits, by the names under which their notations count."""

    def __init__(self) -> None:
        self._code_by_name: dict[str, Any] = {}

    def check(self, function: Any) -> None:
        """Raises for another function of a name that is taken: both would count for one place."""
        function = inspect.unwrap(function)
        name, code = name_of(function), getattr(function, "__code__", type(function))
        if self._code_by_name.setdefault(name, code) is not code:
            raise ConfigError(
                f"two functions with limits are named {name}, so that their notations would be one budget: "
                "rename one, or give each policy a name"
            )


def _above_route(view: Any, decorator: str) -> ConfigError:
    return ConfigError(
        f"@tg.{decorator} stands above the route of {name_of(view)}, which is registered without it: "
        "put it below @app.get(…)"
    )


def _views(app: Flask, endpoint: str) -> Iterator[Any]:
    """The view of an endpoint, and what its decorators have wrapped. What is a view of its own is not among these."""
    view = app.view_functions[endpoint]
    registered = {id(one) for one in app.view_functions.values() if one is not view}
    return (one for one in _wrapping(view) if id(one) not in registered)


def _wrapping(view: Any) -> Iterator[Any]:
    return with_wrapped(view, lambda one: not isinstance(one, (Flask, Blueprint)))


def _handler_name(view_class: Any, method: str) -> str:
    """The name of the method of a class that serves an HTTP method, as `MethodView` finds it."""
    return "get" if method == "HEAD" and not hasattr(view_class, "head") else method.lower()


def name_of(view: Any) -> str:
    """The name of what was decorated: the same in every process."""
    if isinstance(view, Blueprint):
        return f"blueprint {view.name}"
    name = getattr(view, "__qualname__", type(view).__qualname__)
    # All views that classes make have the same long name.
    return f"{getattr(view, '__module__', '')}.{view.__name__ if name.endswith('as_view.<locals>.view') else name}"


def check_decorated(view: Any, decorator: str, apps: list[Flask]) -> None:
    """Raises where a decorator would have no effect."""
    if isinstance(view, (classmethod, staticmethod, property)):
        raise ConfigError(f"put @tg.{decorator} below @{type(view).__name__}: it is for the function itself")
    if isinstance(view, Flask):
        raise ConfigError(
            f"@tg.{decorator} is for views: a limit of a whole application is Tidegate(app, application=…)"
        )
    if inspect.isclass(view) and not issubclass(view, View):
        raise ConfigError(
            f"@tg.{decorator} is for class views, and {name_of(view)} is no flask.views.View: "
            "put it above the function that serves requests"
        )
    if not callable(view) and not isinstance(view, Blueprint):
        raise ConfigError(f"@tg.{decorator} is for views, class views and blueprints, not for {type(view).__name__}")
    if any(view is known for app in apps for known in app.view_functions.values()):
        raise _above_route(view, decorator)
