"""Adds the refusals of limited routes to the OpenAPI document of a FastAPI application: 429, its fields and problem."""

from __future__ import annotations

import functools
import http
import json
from collections.abc import Callable, Iterator
from typing import Any

from ..web.layers import LIMITS
from ..web.limit import DeclaredLimit
from . import routes

STATUS = http.HTTPStatus.TOO_MANY_REQUESTS.value


def describe(tidegate: Any, app: Any, dependency: type[Any], answers: Callable[[Any], bool]) -> None:
    """Adds the limits of a Tidegate to the documents of an application and of the applications that are mounted in it.

    The document is made by `app.openapi`. An application may replace that at any time, so this is called again before
    the first request. `dependency` is the class of limits that are dependencies. `answers` returns true if an
    application has its own answer to refused requests.
    """
    for one in (app, *routes.mounted_in(app)):
        make = getattr(one, "openapi", None)
        if make is not None and getattr(make, LIMITS, None) is not tidegate:
            one.openapi = functools.partial(_described, make, tidegate, one, dependency, answers)
            setattr(one.openapi, LIMITS, tidegate)


def _described(make: Any, tidegate: Any, app: Any, dependency: type[Any], answers: Callable[[Any], bool]) -> Any:
    """Returns the document of an application, with the refusals of its limited routes."""
    document, status = make(), str(STATUS)
    for path, route in routes.routes_of([app]):
        operations = document.get("paths", {}).get(path, {})
        for method in getattr(route, "methods", None) or ():
            responses = operations.get(method.lower(), {}).get("responses")
            # The application's own description of its refusals stays.
            if responses is None or status in responses:
                continue
            if limits := list(_limits_of(tidegate, route, method, dependency)):
                responses[status] = _response(document, limits, is_ours=not answers(app))
    return document


def _limits_of(tidegate: Any, route: Any, method: str, dependency: type[Any]) -> Iterator[DeclaredLimit]:
    """Returns the limits of a route that may refuse a method, as they are written."""
    limits, _, exempt = tidegate._find_limits(route, route.endpoint, method)
    asked = [tidegate._declare(one._policy, one._options) for one in routes.dependencies_of(route, dependency)]
    for limit in () if exempt else (*asked, *limits):
        applies = limit.enabled and (limit.methods is None or method in limit.methods)
        # A policy in shadow does not deny.
        if applies and (limit.choose or any(not tidegate.limiter.policy(use[0]).shadow for use in limit.policies)):
            yield limit


def _response(document: Any, limits: list[DeclaredLimit], is_ours: bool) -> Any:
    """Returns the response of a refusal. Its problem becomes a schema, unless the application has its own answer."""
    # Each limit chooses the fields of its own refusals.
    response, *others = (json.loads(limit.headers.openapi()) for limit in limits)
    for other in others:
        response["headers"].update(other["headers"])
    if not is_ours or all(limit.on_denied is not None for limit in limits):
        del response["content"]
        return response
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for content in response["content"].values():
        schema = content["schema"]
        # If the application has another schema of that name, the problem stays here.
        if schemas.setdefault(schema["title"], schema) == schema:
            content["schema"] = {"$ref": f"#/components/schemas/{schema['title']}"}
    return response
