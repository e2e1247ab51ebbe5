"""Django without a project: its settings, and its ASGI handler."""

from __future__ import annotations

from typing import Any


def django_settings() -> Any:
    """Django's settings, with the middleware only."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DEBUG=False,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="only for tests",
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
