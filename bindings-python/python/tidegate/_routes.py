"""The verb `tidegate routes MODULE:APP`: the limits of each route of a Flask, FastAPI, Starlette or Django application.

The command is in Rust. This verb needs the application, so it is here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

from .errors import ConfigError
from .web.functions import name_of
from .web.layers import AppLimits, with_wrapped_apps
from .web.limit import BoundLimit

ABOUT = "List the limits of each route of a Flask, FastAPI or Django application"
HELP = f"\nThe Python package has one more command:\n  routes       {ABOUT}"
# A method or "*", a path, and the limits, each with the name of its origin.
Route: TypeAlias = "tuple[str, str, list[tuple[BoundLimit, str]]]"


def run(words: list[str]) -> int:
    """Runs the verb with the words behind it. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="tidegate routes", description=f"{ABOUT}.")
    parser.add_argument("app", metavar="MODULE:APP", help="such as app:app, or shop:create_app() for a factory")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(words)
    try:
        listed: list[dict[str, Any]] = [
            {"method": method, "path": path, "limits": [one for bound in limits for one in _described(*bound)]}
            for method, path, limits in routes_of(load(options.app))
        ]
    except ConfigError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(listed, indent=2))
        return 0
    widths = [max((len(one[column]) for one in listed), default=0) for column in ("method", "path")]
    for one in listed:
        told = ", ".join(_told(limit) for limit in one["limits"]) or "no limit"
        print(f"{one['method']:{widths[0]}}  {one['path']:{widths[1]}}  {told}")
    return 0


def load(target: str) -> Any:
    """Imports an application by its module and its name."""
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), (name or "app").removesuffix("()"))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{target} cannot be loaded: {error}. Give a module and a name, such as app:app") from error
    return found() if name.endswith("()") else found


def routes_of(app: Any) -> Iterator[Route]:
    """Yields the routes of an application."""
    outer: list[tuple[BoundLimit, str]] = []
    for one in with_wrapped_apps(app):
        packages = {kind.__module__.partition(".")[0] for kind in type(one).__mro__}
        if isinstance(one, AppLimits):
            outer += [(bound, "middleware") for bound in one._application]
        for package, read in (("flask", _flask), ("starlette", _starlette), ("django", _django)):
            if package in packages:
                for method, path, limits in read(one):
                    yield method, path, limits + outer
                return
    raise ConfigError(
        f"an object of type {type(app).__name__} is not an application of Flask, FastAPI, Starlette or Django"
    )


def _from(layer: Any, bounds: Iterable[BoundLimit], own: str = "route") -> list[tuple[BoundLimit, str]]:
    """Returns limits with the names of their origins."""

    def origin(bound: BoundLimit) -> str:
        if any(bound is one for one in layer._application):
            return "application"
        return "default" if bound.declared is layer._default else own

    return [(bound, origin(bound)) for bound in bounds]


def _flask(app: Any) -> Iterator[Route]:
    layer = app.extensions.get("tidegate")
    for rule in app.url_map.iter_rules():
        names = rule.endpoint.split(".")[:-1]
        blueprints = [".".join(names[:end]) for end in range(len(names), 0, -1)]
        for method in sorted(rule.methods - {"HEAD", "OPTIONS"}):
            request = SimpleNamespace(method=method, blueprints=blueprints, url_rule=rule)
            limits = layer._find_limits(app, rule.endpoint, request)[0] if layer and layer._is_enabled(app) else ()
            yield method, rule.rule, _from(layer, limits)


def _starlette(app: Any) -> Iterator[Route]:
    from .fastapi import RateLimit, routes

    layer = getattr(app.state, "tidegate", None)
    for path, route in routes.routes_of([app]):
        endpoint = getattr(route, "endpoint", None)
        # A websocket has no method.
        for method in sorted(getattr(route, "methods", None) or ["*"]) if endpoint else ():
            bounds: list[BoundLimit] = []
            if layer is not None:
                limits, _, exempt = layer._find_limits(route, endpoint, None if method == "*" else method)
                of_dependencies = () if exempt else routes.dependencies_of(route, RateLimit)
                bounds = [*limits, *(one.bound_to(layer, route) for one in of_dependencies)]
            if method != "HEAD":
                yield method, path, _from(layer, bounds)


def _django(_: Any) -> Iterator[Route]:
    from django.urls import get_resolver

    from .django.layer import class_of, limits_at, standalone_layer

    layer = standalone_layer()

    def walk(patterns: Iterable[Any], before: str) -> Iterator[Route]:
        for pattern in patterns:
            path = before + str(pattern.pattern)
            if hasattr(pattern, "url_patterns"):
                yield from walk(pattern.url_patterns, path)
                continue
            view_class = class_of(pattern.callback)
            methods = [one for one in getattr(view_class, "http_method_names", ()) if hasattr(view_class, one)]
            for method in [one.upper() for one in methods if one not in ("head", "options")] or ["*"]:
                request = SimpleNamespace(method=method, resolver_match=SimpleNamespace(route=path))
                limits = limits_at(layer, pattern.callback, request) if layer.enabled else ()
                yield method, f"/{path}", _from(layer, limits)

    yield from walk(get_resolver().url_patterns, "")


def _described(bound: BoundLimit, origin: str) -> Iterator[dict[str, Any]]:
    """Yields each policy of a limit, as JSON shows it."""
    if bound.choose is not None:
        yield {"from": origin, "chosen_by": name_of(bound.choose)}
    for entry in bound.entries:
        policy = entry.resolved.announced
        yield {"from": origin, "policy": policy.name, "limits": str(policy), "key": entry.name}


def _told(limit: dict[str, Any]) -> str:
    """Returns a policy in words."""
    if "chosen_by" in limit:
        return f"chosen by {limit['chosen_by']}"
    name, limits = limit["policy"], limit["limits"]
    policy = limits if name == limits else f"{name} ({limits})"
    return f"{policy} by {limit['key']}" + (f" [{limit['from']}]" if limit["from"] != "route" else "")
