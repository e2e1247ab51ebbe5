"""Limits beside middleware of one route or mount, beside the ASGI layer, and on endpoint classes of websockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.endpoints import WebSocketEndpoint
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

from tidegate import Limiter
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import Tidegate, fixed
from web import acall, call_asgi, plain_endpoint, websocket

ORIGIN = {"Origin": "http://page.example"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "GET"}
CORS = Middleware(CORSMiddleware, allow_origins=["*"])


async def plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plain")


async def foreign(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"foreign"})


PLACES: dict[str, Any] = {
    "route": lambda: Route("/a", plain, methods=["GET", "OPTIONS"], middleware=[CORS]),
    "mount": lambda: Mount("/a", foreign, middleware=[CORS]),
    "mounted routes": lambda: Mount("/a", routes=[Route("/", plain), Route("/b", foreign_route())], middleware=[CORS]),
    "mounted router": lambda: Mount("/a", Router(routes=[Route("/", plain)], middleware=[CORS])),
    "host": lambda: Host("testserver", Router(routes=[Route("/a/", plain)], middleware=[CORS])),
}


def foreign_route() -> Any:
    async def endpoint(request: Request) -> PlainTextResponse:
        return PlainTextResponse("b")

    return endpoint


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("option", ["default", "application"])
def test_the_middleware_of_one_place_answers_preflights_and_sees_refusals(place: str, option: str) -> None:
    app = Starlette(routes=[PLACES[place]()])
    Tidegate(app, **{option: "1/minute"})
    path = "/a" if place == "route" else "/a/"
    if option == "default":
        for _ in range(2):
            assert call_asgi(app, "OPTIONS", path, headers=PREFLIGHT).status == 200
    for status in (200, 429):
        seen = call_asgi(app, path=path, headers=ORIGIN)
        assert seen.status == status and seen.items("RateLimit")
        assert seen["Access-Control-Allow-Origin"] == "*"
    assert json.loads(seen.body)["status"] == 429


def test_a_route_with_middleware_has_its_own_limit_and_its_405() -> None:
    tg = Tidegate()
    limited = tg.limit("1/minute")(foreign_route())
    app = Starlette(routes=[Route("/", limited, middleware=[CORS])])
    tg.init_app(app)
    assert [call_asgi(app, method="POST").status for _ in range(3)] == [405] * 3
    assert [call_asgi(app).status for _ in range(2)] == [200, 429]


def test_the_asgi_layer_stands_inside_cors() -> None:
    for kind in (FastAPI, Starlette):
        app: Any = kind()
        app.router.add_route("/", plain)

        async def observe(request: Request, call_next: Any) -> Any:
            return await call_next(request)

        app.add_middleware(BaseHTTPMiddleware, dispatch=observe)
        app.add_middleware(TidegateMiddleware, policy="1/minute")
        app.add_middleware(BaseHTTPMiddleware, dispatch=observe)
        app.add_middleware(CORSMiddleware, allow_origins=["*"])
        for _ in range(2):
            assert call_asgi(app, "OPTIONS", headers=PREFLIGHT).status == 200
        for status in (200, 429):
            seen = call_asgi(app, headers=ORIGIN)
            assert (seen.status, seen["Access-Control-Allow-Origin"]) == (status, "*")


def test_a_websocket_class_is_limited() -> None:
    app = FastAPI()
    tg = Tidegate(app)

    @tg.limit("1/minute")
    class Chat(WebSocketEndpoint):
        pass

    app.router.routes.append(WebSocketRoute("/ws", Chat))
    assert [asyncio.run(websocket(app))[0]["type"] for _ in range(2)] == ["websocket.accept", "websocket.close"]


def test_a_hold_behind_middleware_lasts_to_the_last_byte() -> None:
    from starlette.responses import StreamingResponse

    limiter = Limiter(policies={"held": "concurrency 1"})
    app = FastAPI()
    tg = Tidegate(app, limiter=limiter)
    during: list[int] = []
    after: list[int] = []

    @app.get("/")
    @tg.limit("held", key=fixed("k"))
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            for _ in range(3):
                during.append(limiter.peek("held", "k").remaining)
                yield b"part"

        return StreamingResponse(parts())

    @app.middleware("http")
    async def observe(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    async def main() -> None:
        for _ in range(2):
            assert (await acall(app)).body == b"part" * 3
            after.append(limiter.peek("held", "k").remaining)
        async with limiter.to_async().hold("held", "k"):
            assert (await acall(app)).status == 429

    asyncio.run(main())
    assert during == [0] * 6 and after == [1, 1]


def test_an_endpoint_that_fails_gives_back_its_hold_behind_middleware() -> None:
    limiter = Limiter(policies={"held": "concurrency 1"})
    app = FastAPI()
    tg = Tidegate(app, limiter=limiter)

    @app.get("/")
    @tg.limit("held", key=fixed("k"))
    async def fails() -> None:
        raise ZeroDivisionError

    @app.middleware("http")
    async def observe(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    with pytest.raises(ZeroDivisionError):
        call_asgi(app)
    assert limiter.peek("held", "k").remaining == 1


def test_two_tidegates_one_inside_the_other() -> None:
    outer, inner = FastAPI(), FastAPI()
    limiter = Limiter(policies={"outer": "9/minute", "inner": "1/minute"})
    Tidegate(outer, limiter=limiter, application="outer")
    Tidegate(inner, limiter=limiter, default="inner")
    inner.get("/a")(plain_endpoint())
    outer.mount("/in", inner)
    outer.get("/b")(plain_endpoint())
    assert [call_asgi(outer, path=path).status for path in ("/in/a", "/in/a", "/b")] == [200, 429, 200]
    assert limiter.peek("outer", "203.0.113.9").remaining <= 7
