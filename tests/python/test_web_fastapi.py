"""The particulars of FastAPI and Starlette: dependencies, routers, mounts, and kinds of endpoints."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tidegate import Limiter
from tidegate.fastapi import RateLimit, Tidegate, claim, user
from web import acall, call_asgi, plain_endpoint


def statuses(app: Any, *paths: str, method: str = "GET") -> list[int]:
    return [call_asgi(app, path=path, method=method).status for path in paths]


def test_decorated_endpoints_with_and_without_a_request() -> None:
    app = FastAPI()
    tg = Tidegate(app)

    @app.get("/async")
    @tg.limit("1/minute")
    async def asynchronous() -> str:
        return "a"

    @app.get("/sync")
    @tg.limit("1/minute")
    def synchronous() -> str:
        return "s"

    @app.get("/async/{item}")
    @tg.limit("1/minute")
    async def with_request(request: Request, item: int) -> int:
        assert request.url.path
        return item

    @app.get("/sync/{item}")
    @tg.limit("1/minute")
    def sync_with_request(item: int, request: Request) -> int:
        assert request.url.path
        return item

    for path in ("/async", "/sync", "/async/1", "/sync/1"):
        assert statuses(app, path, path) == [200, 429], path
    # All values of a path parameter share one limit.
    assert statuses(app, "/async/2") == [429]


def test_dependencies_on_routes_routers_and_applications() -> None:
    app = FastAPI()
    Tidegate(app, default="1/minute")
    app.get("/route", dependencies=[Depends(RateLimit("2/minute"))])(plain_endpoint())
    inner = APIRouter(prefix="/router", dependencies=[Depends(RateLimit("3/minute"))])
    inner.get("/a")(plain_endpoint())
    inner.get("/b")(plain_endpoint())
    app.include_router(inner)
    included = APIRouter(prefix="/included")
    included.get("/a")(plain_endpoint())
    included.get("/b")(plain_endpoint())
    app.include_router(included, dependencies=[Depends(RateLimit("2/minute"))])
    assert statuses(app, "/route", "/route", "/route") == [200, 200, 429]
    assert statuses(app, "/router/a", "/router/b", "/router/a", "/router/b") == [200, 200, 200, 429]
    assert statuses(app, "/included/a", "/included/b", "/included/a") == [200, 200, 429]

    whole = FastAPI(dependencies=[Depends(RateLimit("2/minute"))])
    Tidegate(whole)
    whole.get("/a")(plain_endpoint())
    other = APIRouter(prefix="/r")
    other.get("/b")(plain_endpoint())
    whole.include_router(other)
    assert statuses(whole, "/a", "/r/b", "/a") == [200, 200, 429]


def test_dependencies_as_parameters_and_several() -> None:
    app = FastAPI()
    limiter = Limiter(policies={"wide": "10/minute", "tight": "1/minute"})
    Tidegate(app, limiter=limiter)

    @app.get("/")
    async def both(
        wide: None = Depends(RateLimit("wide")),
        tight: None = Depends(RateLimit("tight")),
    ) -> str:
        return "both"

    seen = call_asgi(app)
    assert seen.status == 200 and set(seen.items("RateLimit")) == {"wide", "tight"}
    seen = call_asgi(app)
    assert seen.status == 429 and seen["Content-Type"] == "application/problem+json"
    assert limiter.peek("wide", "203.0.113.9").remaining == 9, "a denial costs nothing"


def test_a_default_applies_to_routes_of_routers() -> None:
    app = FastAPI()
    tg = Tidegate(app, default="2/minute")
    router = APIRouter(prefix="/r")
    router.get("/a")(plain_endpoint())

    @router.get("/free")
    @tg.exempt
    async def free() -> str:
        return "free"

    @router.get("/own")
    @tg.limit("5/minute")
    async def own() -> str:
        return "own"

    outer = APIRouter(prefix="/o")
    outer.include_router(router)
    app.include_router(outer)
    assert statuses(app, *["/o/r/free"] * 4, *["/o/r/own"] * 4) == [200] * 8
    assert statuses(app, "/o/r/a", "/o/r/a", "/o/r/a") == [200, 200, 429]


def test_an_application_that_is_mounted() -> None:
    inner = FastAPI()
    app = FastAPI()
    tg = Tidegate(app, default="2/minute")
    inner.get("/a")(plain_endpoint())

    @inner.get("/own")
    @tg.limit("1/minute")
    async def own() -> str:
        return "own"

    inner.get("/depends", dependencies=[Depends(RateLimit("1/minute"))])(plain_endpoint())
    app.mount("/inner", inner)
    assert statuses(app, "/inner/a", "/inner/a", "/inner/a") == [200, 200, 429]
    assert statuses(app, "/inner/own", "/inner/own") == [200, 429]
    assert statuses(app, "/inner/depends", "/inner/depends") == [200, 429]


def test_starlette_endpoints_of_all_kinds() -> None:
    tg = Tidegate()

    @tg.limit("1/minute")
    async def function(request: Request) -> PlainTextResponse:
        return PlainTextResponse("function")

    @tg.limit("1/minute")
    def threaded(request: Request) -> PlainTextResponse:
        return PlainTextResponse("threaded")

    @tg.limit("2/minute")
    class Whole(HTTPEndpoint):
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("get")

        @tg.limit("1/minute")
        async def post(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("post")

    app = Starlette(routes=[Route("/f", function), Route("/t", threaded), Route("/w", Whole)])
    tg.init_app(app)
    assert statuses(app, "/f", "/f", "/t", "/t") == [200, 429, 200, 429]
    assert statuses(app, "/w", "/w", method="POST") == [200, 429]
    assert statuses(app, "/w", "/w") == [200, 429]


def test_headers_are_on_errors_too() -> None:
    app = FastAPI()
    Tidegate(app, default="100/minute")

    @app.get("/fails")
    async def fails() -> str:
        raise ZeroDivisionError

    async def ask() -> Any:
        async def keep(scope: Any, receive: Any, send: Any) -> None:
            with contextlib.suppress(ZeroDivisionError):
                await app(scope, receive, send)

        return await acall(keep, path="/fails")

    seen = asyncio.run(ask())
    assert seen.status == 500 and seen.items("RateLimit")


def test_users_and_claims() -> None:
    app = FastAPI()
    limiter = Limiter(policies={"p": "1/minute", "q": "1/minute"})
    tg = Tidegate(app, limiter=limiter)
    app.get("/user")(tg.limit("p", key=user())(plain_endpoint()))

    @app.get("/claim")
    @tg.limit("q", key=claim("sub"))
    async def claimed() -> str:
        return "claimed"

    class User:
        is_authenticated = True
        username = "alice"

    assert call_asgi(app, path="/user", user=User()).status == 200
    assert call_asgi(app, path="/claim", state={"claims": {"sub": "bob"}}).status == 200
    assert limiter.peek("p", "alice").remaining == 0
    assert limiter.peek("q", "bob").remaining == 0


def test_functions_may_be_async() -> None:
    app = FastAPI()
    tg = Tidegate(app)

    async def key(request: Request) -> str:
        await asyncio.sleep(0)
        return request.headers["x-who"]

    async def on_denied(request: Request, decision: Any) -> PlainTextResponse:
        return PlainTextResponse(decision.policy, 418)

    app.get("/")(tg.limit("1/minute", key=key, on_denied=on_denied)(plain_endpoint()))
    assert call_asgi(app, headers={"X-Who": "a"}).status == 200
    assert call_asgi(app, headers={"X-Who": "a"}).status == 418
    assert call_asgi(app, headers={"X-Who": "b"}).status == 200
