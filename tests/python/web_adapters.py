"""Every web layer behind one interface: an application with one view, limited as a test says."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from web import SeenResponse, call_asgi, call_wsgi
from web_django import django_asgi, django_settings

# The options of the limiter; all others are options of the limit.
LIMITER_OPTIONS = {"limiter", "store", "policies", "prefix", "timeout", "on_store_error", "deny_cache", "clock"}
_numbers = itertools.count()

# A view returns a status, and a body or the parts of a stream.
View = Callable[[], "tuple[int, bytes | list[Any]]"]


@dataclass
class LimitedApp:
    """An application with one view, and how to call it."""

    app: Any
    call: Callable[..., SeenResponse]
    get: Callable[..., SeenResponse] = field(init=False)

    def __post_init__(self) -> None:
        self.get = lambda **more: self.call(self.app, **more)


def simple() -> tuple[int, bytes]:
    return 200, b"ok"


class Adapter:
    """Makes applications of one framework."""

    name = ""
    # How a function of the request reads it.
    header: Callable[[Any, str], str | None]
    method: Callable[[Any], str]
    # A response that on_denied may return.
    denial: Callable[[], Any]

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        raise NotImplementedError


class FlaskAdapter(Adapter):
    name = "flask"

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        return "slow down", 418

    def make(self, policy: Any, view: View = simple, asynchronous: bool = False, **options: Any) -> LimitedApp:
        import flask

        from tidegate.flask import Tidegate

        app = flask.Flask(f"app{next(_numbers)}")
        limiter = {name: options.pop(name) for name in LIMITER_OPTIONS & options.keys()}
        tg = Tidegate(app, **limiter)

        def answer() -> Any:
            status, body = view()
            return flask.Response(_stream(body) if isinstance(body, list) else body, status)

        async def later() -> Any:
            return answer()

        app.route("/", methods=["GET", "POST"])(tg.limit(policy, **options)(later if asynchronous else answer))
        return LimitedApp(app, call_wsgi)


class FlaskAsyncAdapter(FlaskAdapter):
    name = "flask, async views"

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:  # type: ignore[override]
        return super().make(policy, view, asynchronous=True, **options)


class WsgiAdapter(Adapter):
    name = "wsgi"

    def header(self, request: Any, name: str) -> str | None:
        return request.get("HTTP_" + name.upper().replace("-", "_"))

    def denial(self) -> Any:
        def app(environ: Any, start_response: Any) -> Any:
            start_response("418 I'm a Teapot", [])
            return [b"slow down"]

        return app

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from tidegate.wsgi import TidegateMiddleware

        def app(environ: Any, start_response: Any) -> Any:
            status, body = view()
            start_response(f"{status} Whatever", [("Content-Type", "text/plain")])
            return _stream(body) if isinstance(body, list) else [body]

        return LimitedApp(TidegateMiddleware(app, policy, **options), call_wsgi)


class AsgiAdapter(Adapter):
    name = "asgi"

    def header(self, request: Any, name: str) -> str | None:
        return dict(request["headers"]).get(name.lower().encode(), b"").decode() or None

    def denial(self) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"slow down"})

        return app

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from tidegate.asgi import TidegateMiddleware

        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, body = view()
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            if isinstance(body, list):
                for part in _stream(body):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                body = b""
            await send({"type": "http.response.body", "body": body})

        return LimitedApp(TidegateMiddleware(app, policy, **options), call_asgi)


class StarletteAdapter(Adapter):
    name = "starlette"

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("slow down", 418)

    def answer(self, view: View) -> Any:
        from starlette.responses import Response, StreamingResponse

        status, body = view()
        return StreamingResponse(_astream(body), status) if isinstance(body, list) else Response(body, status)

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from starlette.applications import Starlette

        from tidegate.fastapi import Tidegate

        app = Starlette()
        tg = Tidegate(app, **{name: options.pop(name) for name in LIMITER_OPTIONS & options.keys()})

        @tg.limit(policy, **options)
        async def endpoint(request: Any) -> Any:
            return self.answer(view)

        app.router.add_route("/", endpoint, methods=["GET", "POST"])
        return LimitedApp(app, call_asgi)


class FastapiAdapter(StarletteAdapter):
    name = "fastapi"
    asynchronous = True

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from fastapi import FastAPI

        from tidegate.fastapi import Tidegate

        app = FastAPI()
        tg = Tidegate(app, **{name: options.pop(name) for name in LIMITER_OPTIONS & options.keys()})

        async def later() -> Any:
            return self.answer(view)

        def now() -> Any:
            return self.answer(view)

        endpoint = tg.limit(policy, **options)(later if self.asynchronous else now)
        app.api_route("/", methods=["GET", "POST"])(endpoint)
        return LimitedApp(app, call_asgi)


class FastapiThreadAdapter(FastapiAdapter):
    name = "fastapi, sync endpoints"
    asynchronous = False


class FastapiDependsAdapter(StarletteAdapter):
    name = "fastapi, Depends"

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from fastapi import Depends, FastAPI

        from tidegate.fastapi import RateLimit, Tidegate

        app = FastAPI()
        Tidegate(app, **{name: options.pop(name) for name in LIMITER_OPTIONS & options.keys()})

        @app.api_route("/", methods=["GET", "POST"], dependencies=[Depends(RateLimit(policy, **options))])
        async def endpoint() -> Any:
            return self.answer(view)

        return LimitedApp(app, call_asgi)


class DjangoAdapter(Adapter):
    name = "django"
    asynchronous = False

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        from django.http import HttpResponse

        return HttpResponse("slow down", status=418)

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        import sys
        import types

        settings = django_settings()
        from django.core.handlers.wsgi import WSGIHandler
        from django.http import HttpResponse, StreamingHttpResponse
        from django.urls import path

        from tidegate.django import limit

        # Django's settings hold for the process; each application replaces them.
        settings.TIDEGATE = {name: options.pop(name) for name in LIMITER_OPTIONS & options.keys()}

        def answer() -> Any:
            status, body = view()
            if isinstance(body, list):
                return StreamingHttpResponse(_astream(body) if self.asynchronous else _stream(body), status=status)
            return HttpResponse(body, status=status)

        async def later(request: Any) -> Any:
            return answer()

        def now(request: Any) -> Any:
            return answer()

        urls = types.ModuleType(f"urls{next(_numbers)}")
        urls.urlpatterns = [path("", limit(policy, **options)(later if self.asynchronous else now))]  # type: ignore[attr-defined]
        sys.modules[urls.__name__] = urls
        settings.ROOT_URLCONF = urls.__name__
        from django.urls import clear_url_caches

        clear_url_caches()
        if self.asynchronous:
            return LimitedApp(django_asgi(), call_asgi)
        return LimitedApp(WSGIHandler(), call_wsgi)


class DjangoAsyncAdapter(DjangoAdapter):
    name = "django, async views"
    asynchronous = True


def _stream(parts: list[Any]) -> Iterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part


async def _astream(parts: list[Any]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part


ADAPTERS: list[Adapter] = [
    FlaskAdapter(),
    FlaskAsyncAdapter(),
    WsgiAdapter(),
    AsgiAdapter(),
    StarletteAdapter(),
    FastapiAdapter(),
    FastapiThreadAdapter(),
    FastapiDependsAdapter(),
    DjangoAdapter(),
    DjangoAsyncAdapter(),
]
