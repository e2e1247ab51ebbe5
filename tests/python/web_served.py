"""The applications that `test_web_servers.py` serves. The store comes from the environment."""

from __future__ import annotations

import os
from typing import Any

POLICIES = {"crowd": "fixed-window 50/hour; 10000/day", "short": "fixed-window 3/2s", "held": "concurrency 2"}


def options() -> dict[str, Any]:
    return {
        "store": os.environ["TIDEGATE_TEST_STORE"],
        "prefix": os.environ["TIDEGATE_TEST_PREFIX"],
        "timeout": 10.0,
        "policies": POLICIES,
    }


def flask_app() -> Any:
    from flask import Flask, Response

    from tidegate.flask import Tidegate

    app = Flask("served")
    tg = Tidegate(app, **options())

    @app.get("/crowd")
    @tg.limit("crowd")
    def crowd() -> str:
        return "ok"

    @app.get("/short")
    @tg.limit("short")
    def short() -> str:
        return "ok"

    @app.get("/held")
    @tg.limit("held", key="k")
    def held() -> Response:
        return Response(slowly())

    return app


def slowly() -> Any:
    import time

    for _ in range(400):
        yield b"x" * 65536
        time.sleep(0.005)


def fastapi_app() -> Any:
    from fastapi import Depends, FastAPI
    from starlette.responses import StreamingResponse

    from tidegate.fastapi import RateLimit, Tidegate

    app = FastAPI()
    tg = Tidegate(app, **options())

    @app.get("/crowd")
    @tg.limit("crowd")
    async def crowd() -> str:
        return "ok"

    @app.get("/short", dependencies=[Depends(RateLimit("short"))])
    def short() -> str:
        return "ok"

    @app.get("/held")
    @tg.limit("held", key="k")
    async def held() -> StreamingResponse:
        import asyncio

        async def parts() -> Any:
            for _ in range(400):
                yield b"x" * 65536
                await asyncio.sleep(0.005)

        return StreamingResponse(parts())

    return app


def django_app(asynchronous: bool) -> Any:
    import sys
    import types

    from django.conf import settings

    urls = types.ModuleType("served_urls")
    sys.modules[urls.__name__] = urls
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="only for tests",
        MIDDLEWARE=["tidegate.django.TidegateMiddleware"],
        ROOT_URLCONF=urls.__name__,
        TIDEGATE=options(),
    )
    import django

    django.setup()
    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse, StreamingHttpResponse
    from django.urls import path

    from tidegate.django import limit

    def view(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    async def aview(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    def held(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(slowly())

    one = aview if asynchronous else view
    urls.urlpatterns = [  # type: ignore[attr-defined]
        path("crowd", limit("crowd")(one)),
        path("short", limit("short")(one)),
        path("held", limit("held", key="k")(held)),
    ]
    return ASGIHandler() if asynchronous else WSGIHandler()


def django_wsgi() -> Any:
    return django_app(False)


def django_asgi() -> Any:
    return django_app(True)
