"""What `tidegate.flask` reads of the views of an application."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import flask
from flask import Blueprint, Flask
from flask.views import View

from .errors import ConfigError
from .web.bound_limit import BoundLimit
from .web.declared_limit import DeclaredLimit
from .web.wrapped import with_wrapped

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
                if (handler := _handler_of(view_class, request.method)) is not None:
                    for one in _wrapping(handler):
                        self._add(one, f"{endpoint}.{handler.__name__}")
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


def _views(app: Flask, endpoint: str) -> Iterator[Any]:
    """The view of an endpoint, and what its decorators have wrapped. What is a view of its own is not among these."""
    view = app.view_functions[endpoint]
    registered = {id(one) for one in app.view_functions.values() if one is not view}
    return (one for one in _wrapping(view) if id(one) not in registered)


def _wrapping(view: Any) -> Iterator[Any]:
    return with_wrapped(view, lambda one: not isinstance(one, (Flask, Blueprint)))


def _handler_of(view_class: Any, method: str) -> Any:
    """The method of a class that serves an HTTP method, as `MethodView` finds it."""
    handler = getattr(view_class, method.lower(), None)
    if handler is None and method == "HEAD":
        handler = getattr(view_class, "get", None)
    return handler


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
    if inspect.isclass(view) and not issubclass(view, View):
        raise ConfigError(
            f"@tg.{decorator} is for class views, and {name_of(view)} is no flask.views.View: "
            "put it above the function that serves requests"
        )
    if not callable(view) and not isinstance(view, Blueprint):
        raise ConfigError(f"@tg.{decorator} is for views, class views and blueprints, not for {type(view).__name__}")
    if any(view is known for app in apps for known in app.view_functions.values()):
        raise ConfigError(
            f"@tg.{decorator} stands above the route of {name_of(view)}, which is registered without it: "
            "put it below @app.get(…)"
        )
