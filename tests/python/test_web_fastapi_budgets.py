"""FastAPI and Starlette: the requests that a default counts, and those that the limit of an application counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tidegate import Limiter
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate
from web import SeenResponse, call_asgi, plain_endpoint, websocket

PREFLIGHT = {"Origin": "http://page.example", "Access-Control-Request-Method": "GET"}
TWO = "2/minute"


async def plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plain")


def other(request: Request) -> PlainTextResponse:
    return PlainTextResponse("other")


async def answering(scope: Any, receive: Any, send: Any) -> None:
    """An application without Starlette."""
    answering.calls += 1  # type: ignore[attr-defined]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"foreign"})


answering.calls = 0  # type: ignore[attr-defined]


def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    return [call_asgi(app, path=path, **more).status for path in paths]


def get(app: Any, path: str = "/", **more: Any) -> SeenResponse:
    return call_asgi(app, path=path, **more)


def fastapi_app() -> Any:
    app = FastAPI()
    app.get("/a")(plain_endpoint())
    app.get("/b")(plain_endpoint())
    return app


def starlette_app() -> Any:
    return Starlette(routes=[Route("/a", plain), Route("/b", other)])


APPS = [fastapi_app, starlette_app]


@pytest.mark.parametrize("make", APPS)
def test_a_default_is_a_budget_of_each_route(make: Any) -> None:
    app = make()
    Tidegate(app, default=TWO)
    assert statuses(app, "/a", "/a", "/a", "/b", "/b", "/b") == [200, 200, 429, 200, 200, 429]


@pytest.mark.parametrize("make", APPS)
@pytest.mark.parametrize("option", ["default", "application"])
def test_a_preflight_that_cors_answers_is_not_counted(make: Any, option: str) -> None:
    app = make()
    Tidegate(app, **{option: "1/minute"})
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    for _ in range(3):
        seen = get(app, "/a", method="OPTIONS", headers=PREFLIGHT)
        assert seen.status == 200 and "RateLimit" not in seen
    assert statuses(app, "/a", "/a", headers={"Origin": "http://page.example"}) == [200, 429]


@pytest.mark.parametrize("make", APPS)
def test_a_default_counts_no_404_no_405_and_no_redirect(make: Any) -> None:
    app = make()
    tg = Tidegate(app, default="1/minute")
    if make is fastapi_app:
        app.get("/own")(tg.limit("1/minute")(plain_endpoint()))
    else:
        app.add_route("/own", tg.limit("1/minute")(fresh()))
    for _ in range(3):
        for path, method, status in (("/no", "GET", 404), ("/a", "DELETE", 405), ("/own", "PUT", 405)):
            seen = get(app, path, method=method)
            assert seen.status == status and "RateLimit" not in seen, path
        assert get(app, "/a/").status == 307
    assert statuses(app, "/a", "/a", "/own", "/own") == [200, 429, 200, 429]


def fresh() -> Any:
    async def endpoint(request: Request) -> PlainTextResponse:
        return PlainTextResponse("fresh")

    return endpoint


@pytest.mark.parametrize("make", APPS)
def test_the_limit_of_an_application_counts_everything_once(make: Any) -> None:
    limiter = Limiter(policies={"all": "8/minute", "own": "3/minute"})
    app = make()
    tg = Tidegate(app, limiter=limiter, application="all", default=TWO)
    if make is fastapi_app:
        app.get("/own")(tg.limit("own")(plain_endpoint()))
    else:
        app.add_route("/own", tg.limit("own")(fresh()))
    app.add_middleware(CORSMiddleware, allow_origins=["*"])

    def left() -> int:
        return limiter.peek("all", "203.0.113.9").remaining

    assert get(app, "/own").status == 200 and left() == 7
    assert limiter.peek("own", "203.0.113.9").remaining == 2
    assert get(app, "/a").status == 200 and left() == 6
    assert get(app, "/no").status == 404 and left() == 5
    assert get(app, "/a", method="DELETE").status == 405 and left() == 4
    assert get(app, "/a/").status == 307 and left() == 3
    # The route's own limit refuses, so the application's limit is not charged.
    assert statuses(app, "/a", "/a") == [200, 429] and left() == 2
    assert statuses(app, "/no", "/no") == [404, 404] and left() == 0
    # The application's budget is spent. Every request is refused, and a page of another origin may read that.
    for path in ("/own", "/a", "/b", "/no", "/a/"):
        seen = get(app, path, headers={"Origin": "http://page.example"})
        assert seen.status == 429 and seen["Content-Type"] == "application/problem+json", path
        assert seen["Access-Control-Allow-Origin"] == "*" and set(seen.items("RateLimit")) >= {"all"}
    assert get(app, "/a", method="DELETE").status == 429


def test_a_handler_may_answer_what_an_application_limit_refuses() -> None:
    app = starlette_app()
    Tidegate(app, application="1/minute")
    app.add_exception_handler(429, lambda request, error: PlainTextResponse("mine", 429))
    assert statuses(app, "/no") == [404]
    for path in ("/no", "/a"):
        seen = get(app, path)
        assert (seen.status, seen.body) == (429, b"mine") and seen["Retry-After"]


def test_an_exempt_route_has_neither() -> None:
    app = FastAPI()
    tg = Tidegate(app, default="1/minute", application="1/minute")
    app.get("/free")(tg.exempt(plain_endpoint()))
    assert statuses(app, "/free", "/free", "/free") == [200] * 3


def test_an_exempt_route_of_a_limited_router_is_free() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    router = APIRouter(dependencies=[Depends(RateLimit("1/minute"))])
    router.get("/free")(tg.exempt(plain_endpoint()))
    router.get("/a")(plain_endpoint())
    app.include_router(router)
    assert statuses(app, "/free", "/free", "/a", "/a") == [200, 200, 200, 429]


def test_a_mounted_function_has_a_limit_of_its_own_or_none() -> None:
    def foreign() -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await answering(scope, receive, send)

        return app

    tg = Tidegate(default=TWO)
    mounts = [Mount("/own", tg.limit("1/minute")(foreign())), Mount("/free", tg.exempt(foreign()))]
    app = Starlette(routes=mounts)
    tg.init_app(app)
    assert statuses(app, "/own/x", "/own/x", "/free/x", "/free/x", "/free/x") == [200, 429, 200, 200, 200]


def test_a_websocket_without_a_route_is_counted_and_closed() -> None:
    app = FastAPI()
    Tidegate(app, application="3/minute")
    closed = [asyncio.run(websocket(app)) for _ in range(2)]
    assert [[message["type"] for message in seen] for seen in closed] == [["websocket.close"]] * 2
    assert get(app, "/no").status == 404
    (refused,) = asyncio.run(websocket(app))
    assert (refused["type"], refused["code"]) == ("websocket.close", 1008)
    assert get(app, "/no").status == 429


@pytest.mark.parametrize("way", ["decorator", "depends", "asgi"])
def test_a_websocket_is_a_get_to_the_option_methods(way: str) -> None:
    for methods, first in ((["GET", "POST"], "websocket.close"), (["POST"], "websocket.accept")):

        async def endpoint(socket: WebSocket) -> None:
            await socket.accept()
            await socket.close()

        app: Any = FastAPI()
        tg = Tidegate(app)
        depends = [Depends(RateLimit("1/minute", methods=methods))] if way == "depends" else []
        app.websocket("/ws", dependencies=depends)(
            tg.limit("1/minute", methods=methods)(endpoint) if way == "decorator" else endpoint
        )
        if way == "asgi":
            app = TidegateMiddleware(app, "1/minute", methods=methods)
        assert [asyncio.run(websocket(app))[0]["type"] for _ in range(2)] == ["websocket.accept", first]


@pytest.mark.parametrize("option", ["default", "application"])
def test_a_mounted_application_without_routes_is_a_view(option: str) -> None:
    app = Starlette(routes=[Mount("/one", answering), Mount("/two", answering)])
    Tidegate(app, **{option: TWO})
    before = answering.calls  # type: ignore[attr-defined]
    assert statuses(app, "/one/x", "/one/y", "/one/x") == [200, 200, 429]
    # A refused request does not reach the application.
    assert answering.calls == before + 2  # type: ignore[attr-defined]
    assert statuses(app, "/two/x") == [200 if option == "default" else 429]


def test_the_routes_of_mounted_applications_have_their_limits() -> None:
    inner = FastAPI()
    app = FastAPI()
    tg = Tidegate(app, default=TWO, application="100/minute")
    inner.get("/own")(tg.limit("1/minute")(plain_endpoint()))
    inner.get("/a")(plain_endpoint())
    app.mount("/plain", inner)
    behind = FastAPI()
    behind.get("/own")(tg.limit("1/minute")(plain_endpoint()))
    behind.get("/a")(plain_endpoint())
    app.mount("/behind", CORSMiddleware(behind, allow_origins=["*"]))
    for prefix in ("/plain", "/behind"):
        paths = [f"{prefix}/{path}" for path in ("own", "own", "a", "a", "a")]
        assert statuses(app, *paths) == [200, 429, 200, 200, 429]
    # Only the application's limit counts a 404 inside.
    seen = get(app, "/plain/no")
    assert seen.status == 404 and seen["X-RateLimit-Limit"] == "100"


def test_a_hidden_route_of_a_mounted_application_keeps_its_limit() -> None:
    """An application that hides its routes counts as one view. A limit inside still holds."""
    inner = FastAPI()
    app = FastAPI()
    tg = Tidegate(app, default="3/minute", application="100/minute")
    inner.get("/own")(tg.limit("1/minute")(plain_endpoint()))
    inner.get("/a")(plain_endpoint())
    limiter = Limiter()

    async def hiding(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)

    app.mount("/hidden", hiding)
    assert statuses(app, "/hidden/own", "/hidden/own") == [200, 429]
    assert statuses(app, "/hidden/a", "/hidden/a", "/hidden/a") == [200, 200, 429]
    limiter.close()


def test_static_files_are_a_view(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("text")
    app = Starlette(routes=[Mount("/static", StaticFiles(directory=tmp_path))])
    Tidegate(app, default=TWO)
    assert statuses(app, "/static/file", "/static/file", "/static/file") == [200, 200, 429]


def test_routers_that_mount_applications_keep_their_routes_apart() -> None:
    inner = Starlette()
    app = FastAPI()
    tg = Tidegate(app)
    inner.router.routes.append(Route("/own", tg.limit("1/minute")(fresh())))
    inner.router.routes.append(Route("/free", plain))
    router = APIRouter()
    router.mount("/sub", inner)
    app.include_router(router, prefix="/r")
    assert statuses(app, "/r/sub/free", "/r/sub/own", "/r/sub/own", "/r/sub/free") == [200, 200, 429, 200]


def test_a_method_has_a_budget_of_its_own_when_it_is_asked_for() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    app.api_route("/", methods=["GET", "POST"])(tg.limit("1/minute", per_method=True)(plain_endpoint()))
    assert [get(app, method=method).status for method in ("GET", "POST", "GET", "POST")] == [200, 200, 429, 429]


def test_a_head_request_counts_for_the_get_of_a_class() -> None:
    app = Starlette()
    tg = Tidegate(app)

    class Whole(HTTPEndpoint):
        @tg.limit("1/minute")
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("get")

    class Defaulted(HTTPEndpoint):
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("get")

    app.add_route("/", Whole)
    assert [get(app, method=method).status for method in ("HEAD", "GET", "HEAD")] == [200, 429, 429]
    app = Starlette(routes=[Route("/", Defaulted)])
    Tidegate(app, default="1/minute")
    assert [get(app, method=method).status for method in ("POST", "POST", "GET", "GET")] == [405, 405, 200, 429]


def test_a_skip_of_the_application_stays_beside_that_of_a_limit() -> None:
    app = FastAPI()
    tg = Tidegate(app, skip=lambda request: "x-admin" in request.headers)
    app.get("/")(tg.limit("1/minute", skip=lambda request: "x-test" in request.headers)(plain_endpoint()))
    for name in ("X-Admin", "X-Test"):
        assert [get(app, headers={name: "1"}).status for _ in range(3)] == [200] * 3
    assert statuses(app, "/", "/") == [200, 429]
