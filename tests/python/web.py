"""Every web layer behind one face: an application with one view, limited as a test says, and what a client sees."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from http_sfv import List


@dataclass
class Seen:
    """What a client sees of an answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    parts: list[bytes] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        values = [value for known, value in self.headers if known.lower() == name.lower()]
        assert len(values) == 1, f"{name} is there {len(values)} times: {self.headers}"
        return values[0]

    def __contains__(self, name: str) -> bool:
        return any(known.lower() == name.lower() for known, _ in self.headers)

    def items(self, name: str) -> dict[str, dict[str, Any]]:
        """A list field, as somebody else's parser understands it."""
        parsed = List()
        parsed.parse(self[name].encode("ascii"))
        return {str(item.value): dict(item.params) for item in parsed}


def call_wsgi(
    app: Any, method: str = "GET", path: str = "/", headers: dict[str, str] | None = None, **more: Any
) -> Seen:
    """One request over WSGI, as a server makes it."""
    import io

    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "203.0.113.9",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **more,
    }
    for name, value in (headers or {}).items():
        environ["HTTP_" + name.upper().replace("-", "_")] = value
    begun: list[Any] = []

    def start(status: str, fields: list[tuple[str, str]], error: Any = None) -> Any:
        begun[:] = [int(status.split()[0]), fields]
        return lambda _: None

    body = app(environ, start)
    try:
        parts = list(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    return Seen(begun[0], begun[1], b"".join(parts), parts)


async def acall(
    app: Any, method: str = "GET", path: str = "/", headers: dict[str, str] | None = None, **more: Any
) -> Seen:
    """One request over ASGI, as a server makes it."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"testserver")]
        + [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "client": ("203.0.113.9", 4711),
        "server": ("testserver", 80),
        "state": {},
        **more,
    }
    seen = Seen(0, [], b"")
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        request = next(requests, None)
        if request is None:
            await asyncio.sleep(3600)
        return request

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert seen.status == 0, "an answer begins once"
            seen.status = message["status"]
            seen.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            seen.parts.append(message.get("body", b""))
            seen.body += message.get("body", b"")

    await app(scope, receive, send)
    return seen


def call_asgi(app: Any, *args: Any, **kwargs: Any) -> Seen:
    """The same from a test that is not async."""
    return asyncio.run(acall(app, *args, **kwargs))


# What the view of an application answers: a status, and a body or the parts of a stream.
View = Callable[[], "tuple[int, bytes | list[Any]]"]


@dataclass
class Made:
    """An application with one view, and how to call it."""

    app: Any
    call: Callable[..., Seen]
    get: Callable[..., Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.get = lambda **more: self.call(self.app, **more)


def simple() -> tuple[int, bytes]:
    return 200, b"ok"


class Adapter:
    """How an application of a framework is made. `limited` is the way in which its view is limited."""

    name = ""
    # What a function of the request finds in it.
    header: Callable[[Any, str], str | None]
    method: Callable[[Any], str]
    # What on_denied may return.
    denial: Callable[[], Any]

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        raise NotImplementedError


class FlaskAdapter(Adapter):
    name = "flask"

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        return "slow down", 418

    def make(self, policy: Any, view: View = simple, asynchronous: bool = False, **options: Any) -> Made:
        import flask

        from tidegate.flask import Tidegate

        app = flask.Flask(f"app{next(_numbers)}")
        limiter = {name: options.pop(name) for name in LIMITER & options.keys()}
        tg = Tidegate(app, **limiter)

        def answer() -> Any:
            status, body = view()
            return flask.Response(_stream(body) if isinstance(body, list) else body, status)

        async def later() -> Any:
            return answer()

        app.route("/", methods=["GET", "POST"])(tg.limit(policy, **options)(later if asynchronous else answer))
        return Made(app, call_wsgi)


class FlaskAsyncAdapter(FlaskAdapter):
    name = "flask, async views"

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:  # type: ignore[override]
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

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        from tidegate.wsgi import TidegateMiddleware

        def app(environ: Any, start_response: Any) -> Any:
            status, body = view()
            start_response(f"{status} Whatever", [("Content-Type", "text/plain")])
            return _stream(body) if isinstance(body, list) else [body]

        return Made(TidegateMiddleware(app, policy, **options), call_wsgi)


class AsgiAdapter(Adapter):
    name = "asgi"

    def header(self, request: Any, name: str) -> str | None:
        return dict(request["headers"]).get(name.lower().encode(), b"").decode() or None

    def denial(self) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"slow down"})

        return app

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        from tidegate.asgi import TidegateMiddleware

        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, body = view()
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            if isinstance(body, list):
                for part in _stream(body):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                body = b""
            await send({"type": "http.response.body", "body": body})

        return Made(TidegateMiddleware(app, policy, **options), call_asgi)


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

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        from starlette.applications import Starlette

        from tidegate.fastapi import Tidegate

        app = Starlette()
        tg = Tidegate(app, **{name: options.pop(name) for name in LIMITER & options.keys()})

        @tg.limit(policy, **options)
        async def endpoint(request: Any) -> Any:
            return self.answer(view)

        app.router.add_route("/", endpoint, methods=["GET", "POST"])
        return Made(app, call_asgi)


class FastapiAdapter(StarletteAdapter):
    name = "fastapi"
    asynchronous = True

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        from fastapi import FastAPI

        from tidegate.fastapi import Tidegate

        app = FastAPI()
        tg = Tidegate(app, **{name: options.pop(name) for name in LIMITER & options.keys()})

        async def later() -> Any:
            return self.answer(view)

        def now() -> Any:
            return self.answer(view)

        endpoint = tg.limit(policy, **options)(later if self.asynchronous else now)
        app.api_route("/", methods=["GET", "POST"])(endpoint)
        return Made(app, call_asgi)


class FastapiThreadAdapter(FastapiAdapter):
    name = "fastapi, sync endpoints"
    asynchronous = False


class FastapiDependsAdapter(StarletteAdapter):
    name = "fastapi, Depends"

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        from fastapi import Depends, FastAPI

        from tidegate.fastapi import RateLimit, Tidegate

        app = FastAPI()
        Tidegate(app, **{name: options.pop(name) for name in LIMITER & options.keys()})

        @app.api_route("/", methods=["GET", "POST"], dependencies=[Depends(RateLimit(policy, **options))])
        async def endpoint() -> Any:
            return self.answer(view)

        return Made(app, call_asgi)


class DjangoAdapter(Adapter):
    name = "django"
    asynchronous = False

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        from django.http import HttpResponse

        return HttpResponse("slow down", status=418)

    def make(self, policy: Any, view: View = simple, **options: Any) -> Made:
        import sys
        import types

        settings = django_settings()
        from django.core.handlers.wsgi import WSGIHandler
        from django.http import HttpResponse, StreamingHttpResponse
        from django.urls import path

        from tidegate.django import limit

        # Settings hold for a process; every application brings its own and takes them back.
        settings.TIDEGATE = {name: options.pop(name) for name in LIMITER & options.keys()}

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
            return Made(django_asgi(), call_asgi)
        return Made(WSGIHandler(), call_wsgi)


class DjangoAsyncAdapter(DjangoAdapter):
    name = "django, async views"
    asynchronous = True


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

# What is said to the limiter; the rest is said to the limit.
LIMITER = {"limiter", "store", "policies", "prefix", "timeout", "on_store_error", "deny_cache", "clock"}
_numbers = itertools.count()


def django_settings() -> Any:
    """Django's settings, with nothing but the middleware."""
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
    """Django's ASGI handler; it leaves the body of a request open when a view fails and the error is not swallowed."""
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


def _stream(parts: list[Any]) -> Iterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part


async def _astream(parts: list[Any]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part
