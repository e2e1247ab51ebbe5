"""Websockets, streams and requests of FastAPI and Starlette: the units that they hold, and the end of these holds."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from fastapi import Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import WebSocketRoute

from tidegate import Limiter
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate, fixed
from web import acall, websocket


@pytest.mark.parametrize("way", ["decorator", "depends", "starlette"])
def test_websockets(way: str) -> None:
    during: list[int] = []
    limiter = Limiter(policies={"p": "2/minute", "held": "concurrency 1"})

    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()
        during.append(limiter.peek("held", "203.0.113.9").remaining)
        await socket.send_text("hello")
        await socket.close()

    if way == "starlette":
        app: Any = Starlette()
        tg = Tidegate(app, limiter=limiter)
        app.router.routes.append(WebSocketRoute("/ws", tg.limit(["p", "held"])(endpoint)))
    else:
        app = FastAPI()
        tg = Tidegate(app, limiter=limiter)
        if way == "decorator":
            app.websocket("/ws")(tg.limit(["p", "held"])(endpoint))
        else:
            app.websocket("/ws", dependencies=[Depends(RateLimit(["p", "held"]))])(endpoint)
    for _ in range(2):
        seen = asyncio.run(websocket(app))
        assert [message["type"] for message in seen] == ["websocket.accept", "websocket.send", "websocket.close"]
        assert any(name == b"ratelimit" for name, _ in seen[0]["headers"])
        assert limiter.peek("held", "203.0.113.9").remaining == 1
    assert during == [0, 0]
    (seen,) = asyncio.run(websocket(app))
    assert (seen["type"], seen["code"]) == ("websocket.close", 1008)
    start, body = asyncio.run(websocket(app, {"websocket.http.response": {}}))
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert (b"content-type", b"application/problem+json") in start["headers"]
    assert b"quota-exceeded" in body["body"]


def test_an_aborted_stream_gives_back_its_hold() -> None:
    app = FastAPI()
    limiter = Limiter(policies={"p": "concurrency 1"})
    tg = Tidegate(app, limiter=limiter)

    @app.get("/")
    @tg.limit("p", key=fixed("k"))
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            while True:
                yield b"part"
                await asyncio.sleep(0.01)

        return StreamingResponse(parts())

    async def leave() -> None:
        task = asyncio.create_task(acall(app))
        await asyncio.sleep(0.1)
        assert limiter.peek("p", "k").remaining == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert limiter.peek("p", "k").remaining == 1


@pytest.mark.parametrize("limited", [False, True])
def test_a_request_leaves_no_reference_cycles(limited: bool) -> None:
    """A reference cycle lives until the collector runs, and that stops a busy server."""
    app = FastAPI()
    if limited:
        Tidegate(app, default="1000/minute")

    @app.get("/")
    async def hello() -> str:
        return "hello"

    async def garbage(requests: int) -> int:
        gc.collect()
        gc.disable()
        # The collector skips the objects that the frameworks have loaded.
        gc.freeze()
        try:
            for _ in range(requests):
                assert (await acall(app)).status == 200
            return gc.collect()
        finally:
            gc.unfreeze()
            gc.enable()

    async def main() -> None:
        await garbage(10)
        few, many = await garbage(10), await garbage(210)
        assert many - few < 100

    asyncio.run(main())


@pytest.mark.parametrize("hold_until", ["response", "handler"])
@pytest.mark.parametrize("way", ["decorator", "depends", "asgi"])
def test_a_hold_lasts_until_the_response_or_the_handler_has_ended(way: str, hold_until: str) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})
    during: list[int] = []

    async def work() -> None:
        during.append(limiter.peek("p", "203.0.113.9").remaining)

    async def endpoint() -> PlainTextResponse:
        return PlainTextResponse("ok", background=BackgroundTask(work))

    app: Any = FastAPI()
    tg = Tidegate(app, limiter=limiter)
    options: Any = {"hold_until": hold_until}
    depends = [Depends(RateLimit("p", **options))] if way == "depends" else []
    limited = tg.limit("p", **options)(endpoint) if way == "decorator" else endpoint
    app.get("/", dependencies=depends, response_model=None)(limited)
    if way == "asgi":
        app = TidegateMiddleware(app, "p", limiter=limiter, **options)
    for _ in range(2):
        assert asyncio.run(acall(app)).status == 200
    assert during == [1 if hold_until == "response" else 0] * 2
    assert limiter.peek("p", "203.0.113.9").remaining == 1
