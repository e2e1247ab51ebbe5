"""A refusal of FastAPI and Starlette passes through middleware, CORS and exception handlers, like every answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import fastapi
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from tidegate import RateLimited, TidegateError
from tidegate.fastapi import RateLimit, Tidegate, fixed
from web import SeenResponse, acall, call_asgi, plain_endpoint, websocket

ORIGIN = {"Origin": "http://page.example"}


async def starlette_endpoint(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plain")


def decorated(**options: Any) -> Any:
    app = FastAPI()
    app.get("/")(Tidegate(app).limit("1/minute", **options)(plain_endpoint()))
    return app


def depending(**options: Any) -> Any:
    app = FastAPI()
    Tidegate(app)
    app.get("/", dependencies=[Depends(RateLimit("1/minute", **options))])(plain_endpoint())
    return app


def by_default(**options: Any) -> Any:
    app = FastAPI()
    Tidegate(app, default="1/minute", **options)
    app.get("/")(plain_endpoint())
    return app


def on_a_router(**options: Any) -> Any:
    app = FastAPI()
    tg = Tidegate(app)
    router = APIRouter()
    router.get("/")(tg.limit("1/minute", **options)(plain_endpoint()))
    app.include_router(router)
    return app


def in_bare_starlette(**options: Any) -> Any:
    app = Starlette(routes=[Route("/", starlette_endpoint)])
    Tidegate(app, default="1/minute", **options)
    return app


WAYS = [decorated, depending, by_default, on_a_router, in_bare_starlette]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    made: Callable[..., Any] = request.param
    return made


def second(app: Any, **more: Any) -> SeenResponse:
    """Returns the response to the second request, which a limit of one refuses."""
    assert call_asgi(app, **more).status == 200
    return call_asgi(app, **more)


def is_the_problem(seen: SeenResponse) -> bool:
    assert seen["Content-Type"] == "application/problem+json"
    assert seen["Cache-Control"] == "no-store"
    assert 0 < int(seen["Retry-After"]) <= 63 and seen.items("RateLimit") and seen["X-RateLimit-Remaining"] == "0"
    assert int(seen["Content-Length"]) == len(seen.body)
    return seen.status == 429 and bool(json.loads(seen.body)["violated-policies"])


def test_a_middleware_sees_the_refusal(way: Callable[..., Any]) -> None:
    app = way()
    seen_inside: list[tuple[int, str | None]] = []

    async def observe(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        seen_inside.append((response.status_code, response.headers.get("Retry-After")))
        response.headers["X-Observed"] = "yes"
        return response

    from starlette.middleware.base import BaseHTTPMiddleware

    app.add_middleware(BaseHTTPMiddleware, dispatch=observe)
    seen = second(app)
    assert is_the_problem(seen) and seen["X-Observed"] == "yes"
    assert [status for status, _ in seen_inside] == [200, 429]
    assert seen_inside[1][1] == seen["Retry-After"]


def test_a_page_of_another_origin_may_read_the_refusal(way: Callable[..., Any]) -> None:
    app = way()
    app.add_middleware(CORSMiddleware, allow_origins=["http://page.example"], expose_headers=["Retry-After"])
    seen = second(app, headers=ORIGIN)
    assert is_the_problem(seen)
    assert seen["Access-Control-Allow-Origin"] == "http://page.example"
    assert seen["Access-Control-Expose-Headers"] == "Retry-After"


@pytest.mark.parametrize("kind", [RateLimited, TidegateError, HTTPException, fastapi.HTTPException, 429])
def test_handlers_of_the_application_answer(way: Callable[..., Any], kind: Any) -> None:
    app = way()

    async def handler(request: Request, error: Any) -> JSONResponse:
        assert isinstance(error, RateLimited) and not error.decision
        assert error.status_code == 429 and error.decision.retry_after
        return JSONResponse({"slow": "down"}, 429, headers={"X-Wait": error.headers["Retry-After"]})

    app.add_exception_handler(kind, handler)
    seen = second(app)
    assert (seen.status, json.loads(seen.body)) == (429, {"slow": "down"})
    # The layer adds the missing fields once.
    assert seen["X-Wait"] == seen["Retry-After"] and seen.items("RateLimit")


def test_a_handler_may_pass_on_the_fields(way: Callable[..., Any]) -> None:
    app = way()

    def handler(request: Request, error: Any) -> JSONResponse:
        return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)

    app.add_exception_handler(HTTPException, handler)
    seen = second(app)
    assert (seen.status, json.loads(seen.body)) == (429, {"detail": "Too Many Requests"})
    assert seen["Content-Type"] == "application/json"
    # Each field is there once.
    assert seen["Retry-After"] and seen.items("RateLimit") and seen["X-RateLimit-Limit"] == "1"


def test_the_handlers_of_frameworks_leave_the_problem_alone() -> None:
    from fastapi.exception_handlers import http_exception_handler

    app = decorated()
    app.add_exception_handler(HTTPException, http_exception_handler)
    assert is_the_problem(second(app))


def test_on_denied_comes_before_handlers_and_passes_the_middleware(way: Callable[..., Any]) -> None:
    app = way(on_denied=lambda request, decision: PlainTextResponse("mine", 418))

    def handler(request: Request, error: Any) -> PlainTextResponse:
        raise AssertionError("on_denied answers")

    for kind in (RateLimited, 429, HTTPException):
        app.add_exception_handler(kind, handler)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    seen = second(app, headers=ORIGIN)
    assert (seen.status, seen.body) == (418, b"mine")
    assert seen["Access-Control-Allow-Origin"] == "*" and seen["Retry-After"]


def test_on_denied_that_returns_no_response_is_an_error(way: Callable[..., Any]) -> None:
    app = way(on_denied=lambda request, decision: {"slow": "down"})
    assert call_asgi(app).status == 200
    with pytest.raises(TidegateError, match="on_denied returned an object of type dict: it must return a Response"):
        call_asgi(app)


@pytest.mark.parametrize("inner_kind", [FastAPI, Starlette])
@pytest.mark.parametrize("depends", [False, True])
def test_a_mounted_application_has_handlers_and_middleware_of_its_own(inner_kind: Any, depends: bool) -> None:
    outer = FastAPI()
    tg = Tidegate(outer)
    inner = inner_kind()
    own = inner_kind()
    for sub in (inner, own):
        key = fixed(str(id(sub)))
        if inner_kind is Starlette:
            sub.router.routes.append(Route("/", tg.limit("1/minute", key=key)(fresh_starlette_endpoint())))
        elif depends:
            sub.get("/", dependencies=[Depends(RateLimit("1/minute", key=key))])(plain_endpoint())
        else:
            sub.get("/")(tg.limit("1/minute", key=key)(plain_endpoint()))
    own.add_exception_handler(RateLimited, lambda request, error: PlainTextResponse("inner", 429))
    own.add_middleware(CORSMiddleware, allow_origins=["*"])
    outer.mount("/inner", inner)
    outer.mount("/own", own)
    assert is_the_problem(second(outer, path="/inner/"))
    seen = second(outer, path="/own/", headers=ORIGIN)
    assert (seen.status, seen.body) == (429, b"inner")
    assert seen["Access-Control-Allow-Origin"] == "*"


def fresh_starlette_endpoint() -> Any:
    async def endpoint(request: Request) -> PlainTextResponse:
        return PlainTextResponse("plain")

    return endpoint


def test_the_middleware_of_a_mount_sees_the_refusal() -> None:
    """The mount's middleware sees exceptions of endpoints, too."""
    cors = Middleware(CORSMiddleware, allow_origins=["*"])
    app = Starlette(routes=[Mount("/api", routes=[Route("/", starlette_endpoint)], middleware=[cors])])
    Tidegate(app, default="1/minute")
    seen = second(app, path="/api/", headers=ORIGIN)
    assert is_the_problem(seen) and seen["Access-Control-Allow-Origin"] == "*"


def test_dependencies_that_yield_see_an_http_exception() -> None:
    app = FastAPI()
    Tidegate(app)
    seen_inside: list[int] = []

    async def session() -> Any:
        try:
            yield
        except fastapi.HTTPException as error:
            seen_inside.append(error.status_code)
            raise

    app.get("/", dependencies=[Depends(session), Depends(RateLimit("1/minute"))])(plain_endpoint())
    assert is_the_problem(second(app))
    assert seen_inside == [429]


def test_a_head_request_is_refused_without_a_body() -> None:
    app = in_bare_starlette()
    seen = second(app, method="HEAD")
    assert (seen.status, seen.body) == (429, b"") and int(seen["Content-Length"]) > 0


def test_a_policy_that_is_closed_is_503_for_handlers_too() -> None:
    async def handler(request: Request, error: Any) -> PlainTextResponse:
        assert isinstance(error, HTTPException) and isinstance(error, RateLimited)
        return PlainTextResponse("later", 503)

    answered = FastAPI()
    tg = Tidegate(answered, store="redis://127.0.0.1:1/0", on_store_error="closed")
    answered.get("/")(tg.limit("1/minute")(plain_endpoint()))
    answered.add_exception_handler(503, handler)
    seen = call_asgi(answered)
    assert (seen.status, seen.body) == (503, b"later") and seen["Retry-After"]


@pytest.mark.parametrize("depends", [False, True])
def test_handlers_may_answer_a_websocket(depends: bool) -> None:
    def made(**handlers: Any) -> FastAPI:
        app = FastAPI(exception_handlers={429 if name == "status" else RateLimited: h for name, h in handlers.items()})
        tg = Tidegate(app)

        async def endpoint(socket: fastapi.WebSocket) -> None:
            await socket.accept()
            await socket.close()

        if depends:
            app.websocket("/ws", dependencies=[Depends(RateLimit("1/minute"))])(endpoint)
        else:
            app.websocket("/ws")(tg.limit("1/minute")(endpoint))
        assert asyncio.run(websocket(app))[0]["type"] == "websocket.accept"
        return app

    denial = {"websocket.http.response": {}}
    app = made()
    (seen,) = asyncio.run(websocket(app))
    assert (seen["type"], seen["code"]) == ("websocket.close", 1008)
    start, body = asyncio.run(websocket(app, denial))
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert b"quota-exceeded" in body["body"] and b"retry-after" in dict(start["headers"])

    def as_http(request: Request, error: Any) -> PlainTextResponse:
        return PlainTextResponse("mine", 429)

    app = made(status=as_http)
    start, body = asyncio.run(websocket(app, denial))
    assert start["type"] == "websocket.http.response.start" and body["body"] == b"mine"
    # Without the extension a server can only close the connection, so it gets a close.
    (seen,) = asyncio.run(websocket(app))
    assert (seen["type"], seen["code"]) == ("websocket.close", 1008)

    async def close(socket: fastapi.WebSocket, error: RateLimited) -> None:
        await socket.close(4029, "slow down")

    app = made(kind=close)
    (seen,) = asyncio.run(websocket(app))
    assert (seen["type"], seen["code"]) == ("websocket.close", 4029)


def test_a_refused_request_runs_no_background_task() -> None:
    ran: list[str] = []
    app = FastAPI()
    tg = Tidegate(app)

    @app.get("/")
    @tg.limit("1/minute")
    async def endpoint(background: fastapi.BackgroundTasks) -> str:
        background.add_task(ran.append, "task")
        return "ok"

    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    assert is_the_problem(second(app, headers=ORIGIN))
    assert ran == ["task"]


def test_a_refused_request_leaves_no_reference_cycles(way: Callable[..., Any]) -> None:
    import gc

    app = way()

    async def garbage(requests: int) -> int:
        gc.collect()
        gc.disable()
        # The collector skips the objects that the frameworks have loaded.
        gc.freeze()
        try:
            for _ in range(requests):
                assert (await acall(app)).status == 429
            return gc.collect()
        finally:
            gc.unfreeze()
            gc.enable()

    async def main() -> None:
        await acall(app)
        await garbage(5)
        few, many = await garbage(5), await garbage(45)
        assert many - few < 40

    asyncio.run(main())
