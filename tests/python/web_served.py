"""The applications that `web_servers.py` serves. The store comes from the environment."""

from __future__ import annotations

import logging
import os
from typing import Any

# Shows the process that has logged a line.
logging.basicConfig(format="%(process)d %(name)s %(message)s")

POLICIES = {
    "crowd": "fixed-window 50/hour; 10000/day",
    "ten": "10/hour",
    "short": "fixed-window 3/2s",
    "held": "concurrency 2",
    "load": "fixed-window 1000/hour",
}


def options() -> dict[str, Any]:
    return {
        "store": os.environ["TIDEGATE_TEST_STORE"],
        "prefix": os.environ["TIDEGATE_TEST_PREFIX"],
        "timeout": 10.0,
        "policies": POLICIES,
    }


def flask_app() -> Any:
    from flask import Flask, Response

    from tidegate.flask import Tidegate, fixed

    app = Flask("served")
    tg = Tidegate(app, **options())

    @app.get("/crowd")
    @tg.limit("crowd")
    def crowd() -> str:
        return "ok"

    @app.get("/ten")
    @tg.limit("ten")
    def ten() -> str:
        return "ok"

    @app.get("/short")
    @tg.limit("short")
    def short() -> str:
        return "ok"

    @app.get("/held")
    @tg.limit("held", key=fixed("k"))
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

    from tidegate.fastapi import RateLimit, Tidegate, fixed

    app = FastAPI()
    tg = Tidegate(app, **options())

    @app.get("/crowd")
    @tg.limit("crowd")
    async def crowd() -> str:
        return "ok"

    @app.get("/ten")
    @tg.limit("ten")
    async def ten() -> str:
        return "ok"

    @app.get("/short", dependencies=[Depends(RateLimit("short"))])
    def short() -> str:
        return "ok"

    @app.get("/held")
    @tg.limit("held", key=fixed("k"))
    async def held() -> StreamingResponse:
        import asyncio

        async def parts() -> Any:
            for _ in range(400):
                yield b"x" * 65536
                await asyncio.sleep(0.005)

        return StreamingResponse(parts())

    return app


async def slowly_async() -> Any:
    import asyncio

    for _ in range(400):
        yield b"x" * 65536
        await asyncio.sleep(0.005)


def aiohttp_app() -> Any:
    from aiohttp import web

    from tidegate.aiohttp_web import Tidegate, fixed

    app = web.Application()
    tg = Tidegate(app, **options())

    async def view(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def held(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for part in slowly_async():
            await response.write(part)
        return response

    for name in ("crowd", "ten", "short", "load"):
        app.router.add_get(f"/{name}", tg.limit(name)(view))
    app.router.add_get("/held", tg.limit("held", key=fixed("k"))(held))
    return app


def litestar_app() -> Any:
    from litestar import Litestar, get
    from litestar.middleware import DefineMiddleware
    from litestar.response import Stream

    from tidegate import AsyncLimiter
    from tidegate.asgi import TidegateMiddleware

    limiter = AsyncLimiter(**options())
    limits = DefineMiddleware(
        TidegateMiddleware,
        policy=lambda scope: scope["route_handler"].opt.get("limit"),
        key=lambda scope: "k",
        limiter=limiter,
    )

    async def view() -> str:
        return "ok"

    async def held() -> Stream:
        return Stream(slowly_async())

    held.__annotations__["return"] = Stream
    handlers = [get(f"/{name}", limit=name)(view) for name in ("crowd", "ten", "short", "load")]
    return Litestar(
        [*handlers, get("/held", limit="held")(held)],
        middleware=[limits],
        on_shutdown=[limiter.close],
        openapi_config=None,
    )


def quart_app() -> Any:
    from quart import Quart, Response

    from tidegate.quart import Tidegate, fixed

    app = Quart("served")
    tg = Tidegate(app, **options())

    async def view() -> str:
        return "ok"

    async def held() -> Response:
        return Response(slowly_async())

    for name in ("crowd", "ten", "short", "load"):
        app.add_url_rule(f"/{name}", name, tg.limit(name)(view))
    app.add_url_rule("/held", "held", tg.limit("held", key=fixed("k"))(held))
    return app


def sanic_app() -> Any:
    from sanic import HTTPResponse, Request, Sanic, text

    from tidegate.sanic import Tidegate, fixed

    app = Sanic("served")
    tg = Tidegate(app, **options())

    async def view(request: Request) -> HTTPResponse:
        return text("ok")

    async def held(request: Request) -> None:
        response = await request.respond()
        async for part in slowly_async():
            await response.send(part)

    for name in ("crowd", "ten", "short", "load"):
        app.add_route(tg.limit(name)(view), f"/{name}", name=name)
    app.add_route(tg.limit("held", key=fixed("k"))(held), "/held", name="held")
    return app


def falcon_app() -> Any:
    import falcon

    from tidegate.wsgi import TidegateMiddleware

    class View:
        def on_get(self, request: Any, response: Any) -> None:
            response.text = "ok"

    class Held:
        def on_get(self, request: Any, response: Any) -> None:
            response.stream = slowly()

    app = falcon.App()
    for name in ("crowd", "ten", "short", "load"):
        app.add_route(f"/{name}", View())
    app.add_route("/held", Held())
    return TidegateMiddleware(
        app,
        lambda environ: name if (name := environ["PATH_INFO"][1:]) in POLICIES else None,
        key=lambda environ: "k",
        **options(),
    )


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

    from tidegate.django import fixed, limit

    def view(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    async def aview(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    def held(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(slowly())

    one = aview if asynchronous else view
    urls.urlpatterns = [  # type: ignore[attr-defined]
        path("crowd", limit("crowd")(one)),
        path("ten", limit("ten")(one)),
        path("short", limit("short")(one)),
        path("held", limit("held", key=fixed("k"))(held)),
    ]
    return ASGIHandler() if asynchronous else WSGIHandler()


def django_wsgi() -> Any:
    return django_app(False)


def django_asgi() -> Any:
    return django_app(True)


def rest_framework_wsgi() -> Any:
    """The views of Django REST framework, with limits by decorators and by the throttle classes of the settings."""
    from django.conf import settings

    application = django_app(False)
    settings.INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"]
    settings.REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["tidegate.django.rest_framework.ScopedRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"quick": "short"},
    }
    from django.apps import apps
    from django.http import StreamingHttpResponse
    from django.urls import path

    apps.set_installed_apps(settings.INSTALLED_APPS)
    from rest_framework.decorators import api_view
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from tidegate.django import fixed, limit

    @api_view()
    @limit("crowd")
    def crowd(request: Any) -> Response:
        return Response("ok")

    class Short(APIView):
        throttle_scope = "quick"

        def get(self, request: Any) -> Response:
            return Response("ok")

    @limit("held", key=fixed("k"))
    class Held(APIView):
        def get(self, request: Any) -> StreamingHttpResponse:
            return StreamingHttpResponse(slowly())

    import served_urls

    served_urls.urlpatterns = [path("crowd", crowd), path("short", Short.as_view()), path("held", Held.as_view())]
    return application
