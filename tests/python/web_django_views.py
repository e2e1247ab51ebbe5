"""Views for tests of limits in Django, and decorators that hide them."""

from __future__ import annotations

from typing import Any

from web_django import django_settings

django_settings()

from asgiref.sync import iscoroutinefunction  # noqa: E402
from django.http import HttpResponse  # noqa: E402

GONE = {"store": "redis://127.0.0.1:1/0", "on_store_error": "raise"}
OURS = "tidegate.django.TidegateMiddleware"


def new_view(asynchronous: bool = False) -> Any:
    def view(request: Any, **_: Any) -> HttpResponse:
        return HttpResponse("view")

    async def aview(request: Any, **_: Any) -> HttpResponse:
        return HttpResponse("view")

    return aview if asynchronous else view


def hides(view: Any) -> Any:
    """A decorator without functools.wraps."""
    if iscoroutinefunction(view):

        async def ahidden(request: Any) -> Any:
            return await view(request)

        return ahidden
    return lambda request: view(request)


class Hides:
    """A decorator that keeps the view in a dict, so that no search of its variables finds it."""

    def __init__(self, view: Any) -> None:
        self.views = {"view": view}

    def __call__(self, request: Any) -> Any:
        return self.views["view"](request)
