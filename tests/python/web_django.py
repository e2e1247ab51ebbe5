"""Django without a project: its settings, and its ASGI handler."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

from web import SeenResponse, call_asgi, call_wsgi

_numbers = itertools.count()


def django_settings() -> Any:
    """Configures Django once, with only our middleware. Returns the settings."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DEBUG=False,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="only for tests",
            INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"],
            MIDDLEWARE=["tidegate.django.TidegateMiddleware"],
            DEBUG_PROPAGATE_EXCEPTIONS=True,
        )
        django.setup()
    return settings


def django_asgi() -> Any:
    """Django's ASGI handler. Django itself leaves the body of a request open when an error of a view is propagated."""
    from django.core.handlers.asgi import ASGIHandler

    class Handler(ASGIHandler):
        async def read_body(self, receive: Any) -> Any:
            self.body = await super().read_body(receive)
            return self.body

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            try:
                await super().__call__(scope, receive, send)
            finally:
                self.body.close()

    return Handler()


class Site:
    """Serves views by path, with settings that end with it."""

    def __init__(self) -> None:
        self._changed: list[Any] = []

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        from django.urls import clear_url_caches

        for setting in reversed(self._changed):
            setting.disable()
        clear_url_caches()

    def serve(
        self,
        views: dict[str, Any],
        asynchronous: bool = False,
        *,
        middleware: Any = None,
        rest: Any = None,
        settings: Any = None,
        handlers: Any = None,
        more_urls: Any = (),
        **tidegate: Any,
    ) -> Callable[..., SeenResponse]:
        """Returns a function that requests a path. `tidegate` is the setting TIDEGATE, `rest` is REST_FRAMEWORK."""
        from django.conf import settings as configured
        from django.core.handlers.wsgi import WSGIHandler
        from django.test import override_settings
        from django.urls import clear_url_caches, path

        urls: Any = types.ModuleType(f"urls_{next(_numbers)}")
        sys.modules[urls.__name__] = urls
        changes = {"ROOT_URLCONF": urls.__name__, "TIDEGATE": tidegate, **(settings or {})}
        changes["MIDDLEWARE"] = configured.MIDDLEWARE if middleware is None else middleware
        changes["REST_FRAMEWORK"] = rest or {}
        setting = override_settings(**changes)
        setting.enable()
        self._changed.append(setting)
        urls.urlpatterns = [*(path(route, view) for route, view in views.items()), *more_urls]
        urls.__dict__.update(handlers or {})
        clear_url_caches()
        handler = django_asgi() if asynchronous else WSGIHandler()
        call = call_asgi if asynchronous else call_wsgi

        def get(route: str, method: str = "GET", **more: Any) -> SeenResponse:
            return call(handler, path=f"/{route}", method=method, **more)

        return get


def statuses(get: Any, route: str, times: int = 3, **more: Any) -> list[int]:
    """Makes the same request this many times. Returns the statuses."""
    return [get(route, **more).status for _ in range(times)]
