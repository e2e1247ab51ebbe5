"""Every web layer behind one interface: an application with one view, and with the limit of a test."""

from __future__ import annotations

import importlib.util
import tempfile
from typing import Any

from web import call_aiohttp, call_asgi, call_sanic, call_wsgi
from web_adapter import Adapter, LimitedApp, View, astream, layer_options, numbers, run, simple, stream
from web_django_adapters import DJANGO_ADAPTERS


class FlaskAdapter(Adapter):
    name = "flask"

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        return "slow down", 418

    def plain_denial(self) -> Any:
        return "slow down"

    def make(self, policy: Any, view: View = simple, asynchronous: bool = False, **options: Any) -> LimitedApp:
        import flask

        from tidegate.flask import Tidegate, decision

        app = flask.Flask(f"app{next(numbers)}")
        # Errors of the limits reach the test.
        app.config["PROPAGATE_EXCEPTIONS"] = True
        limiter = layer_options(options)
        tg = Tidegate(app, **limiter)

        def answer() -> Any:
            status, body = run(view, decision())
            return flask.Response(stream(body) if isinstance(body, list) else body, status)

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

    def plain_denial(self) -> Any:
        from werkzeug.wrappers import Response

        return Response("slow down")

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from tidegate.wsgi import TidegateMiddleware

        def app(environ: Any, start_response: Any) -> Any:
            status, body = run(view, environ.get("tidegate.decision"))
            start_response(f"{status} Whatever", [("Content-Type", "text/plain")])
            return stream(body) if isinstance(body, list) else [body]

        if "layer_key" in options:
            policy, options["key"] = [(policy, options.get("key"))], options.pop("layer_key")
        return LimitedApp(TidegateMiddleware(app, policy, **options), call_wsgi)


class AsgiAdapter(Adapter):
    name = "asgi"
    awaits = True

    def header(self, request: Any, name: str) -> str | None:
        return dict(request["headers"]).get(name.lower().encode(), b"").decode() or None

    def denial(self) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"slow down"})

        return app

    def plain_denial(self) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("slow down")

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from tidegate.asgi import TidegateMiddleware

        async def app(scope: Any, receive: Any, send: Any) -> None:
            status, body = run(view, scope.get("tidegate.decision"))
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            if isinstance(body, list):
                for part in stream(body):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                body = b""
            await send({"type": "http.response.body", "body": body})

        if "layer_key" in options:
            policy, options["key"] = [(policy, options.get("key"))], options.pop("layer_key")
        return LimitedApp(TidegateMiddleware(app, policy, **options), call_asgi)


class StarletteAdapter(Adapter):
    name = "starlette"
    awaits = True

    def header(self, request: Any, name: str) -> str | None:
        return request.headers.get(name)

    def denial(self) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("slow down", 418)

    def plain_denial(self) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("slow down")

    def answer(self, view: View, decision: Any) -> Any:
        from starlette.responses import Response, StreamingResponse

        status, body = run(view, decision)
        return StreamingResponse(astream(body), status) if isinstance(body, list) else Response(body, status)

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from starlette.applications import Starlette

        from tidegate.fastapi import Tidegate

        app = Starlette()
        tg = Tidegate(app, **layer_options(options))

        @tg.limit(policy, **options)
        async def endpoint(request: Any) -> Any:
            return self.answer(view, request.state.rate_limit)

        app.router.add_route("/", endpoint, methods=["GET", "POST"])
        return LimitedApp(app, call_asgi)


class FastapiAdapter(StarletteAdapter):
    name = "fastapi"
    asynchronous = True

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from fastapi import FastAPI, Request

        from tidegate.fastapi import Tidegate

        app = FastAPI()
        tg = Tidegate(app, **layer_options(options))

        async def later(request: Request) -> Any:
            return self.answer(view, request.state.rate_limit)

        def now(request: Request) -> Any:
            return self.answer(view, request.state.rate_limit)

        # FastAPI looks up the names of annotations in the globals of a function, which do not have Request.
        later.__annotations__["request"] = now.__annotations__["request"] = Request

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
        Tidegate(app, **layer_options(options))

        dependency = Depends(RateLimit(policy, **options))

        async def endpoint(decision: Any = dependency) -> Any:
            return self.answer(view, decision)

        app.api_route("/", methods=["GET", "POST"])(endpoint)
        return LimitedApp(app, call_asgi)


class AiohttpAdapter(Adapter):
    name = "aiohttp.web"
    awaits = True

    def header(self, request: Any, name: str) -> str | None:
        found: str | None = request.headers.get(name)
        return found

    def denial(self) -> Any:
        from aiohttp import web

        return web.Response(text="slow down", status=418)

    def plain_denial(self) -> Any:
        from aiohttp import web

        return web.Response(text="slow down")

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from aiohttp import web

        from tidegate.aiohttp_web import RATE_LIMIT, Tidegate

        class Status:
            """The name of the status that the tests know."""

            status_code = property(lambda self: self.status)

        class Whole(Status, web.Response):
            pass

        class Streamed(Status, web.StreamResponse):
            pass

        app = web.Application()
        tg = Tidegate(app, **layer_options(options))

        @tg.limit(policy, **options)
        async def endpoint(request: web.Request) -> web.StreamResponse:
            status, body = run(view, request.get(RATE_LIMIT))
            if not isinstance(body, list):
                return Whole(status=status, body=body)
            response = Streamed(status=status)
            await response.prepare(request)
            async for part in astream(body):
                await response.write(part)
            return response

        app.router.add_get("/", endpoint)
        app.router.add_post("/", endpoint)
        return LimitedApp(app, call_aiohttp)


class QuartAdapter(Adapter):
    name = "quart"
    awaits = True

    def header(self, request: Any, name: str) -> str | None:
        found: str | None = request.headers.get(name)
        return found

    def denial(self) -> Any:
        return "slow down", 418

    def plain_denial(self) -> Any:
        return "slow down"

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from quart import Quart, Response

        from tidegate.quart import Tidegate, decision

        app = Quart(f"app{next(numbers)}")
        app.config["PROPAGATE_EXCEPTIONS"] = True
        tg = Tidegate(app, **layer_options(options))

        @tg.limit(policy, **options)
        async def endpoint() -> Response:
            status, body = run(view, decision())
            return Response(astream(body) if isinstance(body, list) else body, status)

        app.route("/", methods=["GET", "POST"])(endpoint)
        return LimitedApp(app, call_asgi)


class SanicAdapter(Adapter):
    name = "sanic"
    awaits = True

    def header(self, request: Any, name: str) -> str | None:
        found: str | None = request.headers.get(name)
        return found

    def denial(self) -> Any:
        from sanic import text

        return text("slow down", 418)

    def plain_denial(self) -> Any:
        from sanic import text

        return text("slow down")

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        from sanic import HTTPResponse, Request, Sanic

        from tidegate.sanic import Tidegate

        class Answer(HTTPResponse):
            """A response with the name of the status that the tests know."""

            status_code = property(lambda self: self.status)

        app = Sanic(f"app{next(numbers)}", configure_logging=False)
        # It would change the code of Sanic for the first application of this process, and fail for others.
        app.config.TOUCHUP = False
        tg = Tidegate(app, **layer_options(options))

        @app.route("/", methods=["GET", "POST", "HEAD"])
        @tg.limit(policy, **options)
        async def endpoint(request: Request) -> Any:
            status, body = run(view, request.ctx.rate_limit)
            if not isinstance(body, list):
                return Answer(body, status)
            response = await request.respond(Answer(status=status))
            async for part in astream(body):
                await response.send(part)
            return None

        return LimitedApp(app, call_sanic)


_folder = tempfile.TemporaryDirectory()


class OnFile(Adapter):
    """Runs another adapter on a file that processes share, unless the test names a store."""

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        if not {"limiter", "store"} & options.keys():
            options |= {"store": f"file://{_folder.name}/limits?max_bytes=8MB", "prefix": f"w{next(numbers)}"}
        return super().make(policy, view, **options)


class WsgiFileAdapter(OnFile, WsgiAdapter):
    name = "wsgi, on a file"


class AsgiFileAdapter(OnFile, AsgiAdapter):
    name = "asgi, on a file"


OPTIONAL: dict[str, Adapter] = {"aiohttp": AiohttpAdapter(), "quart": QuartAdapter(), "sanic": SanicAdapter()}
ADAPTERS: list[Adapter] = [
    FlaskAdapter(),
    FlaskAsyncAdapter(),
    WsgiAdapter(),
    WsgiFileAdapter(),
    AsgiAdapter(),
    AsgiFileAdapter(),
    StarletteAdapter(),
    FastapiAdapter(),
    FastapiThreadAdapter(),
    FastapiDependsAdapter(),
    # Quart needs Python 3.11, and the environments for old versions have few frameworks.
    *(one for name, one in OPTIONAL.items() if importlib.util.find_spec(name)),
    *DJANGO_ADAPTERS,
]
