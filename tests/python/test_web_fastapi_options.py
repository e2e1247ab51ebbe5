"""FastAPI and Starlette: policies by request, switches, metadata, users, and a store that is missing."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import PlainTextResponse

from tidegate import ConfigError, Decision, Limiter, ManualClock, StoreError
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate, claim, client_ip, user
from web import call_asgi, plain_endpoint, websocket

# FastAPI looks up the names of annotations in the globals of a module.
Five = Annotated[Decision | None, Depends(RateLimit("5/minute"))]


def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    return [call_asgi(app, path=path, **more).status for path in paths]


# Policies by request, and switches


def test_a_policy_by_request_may_be_async() -> None:
    async def plan(request: Request) -> Any:
        await asyncio.sleep(0)
        return {"pro": "2/minute", "staff": None}.get(request.headers.get("x-plan", ""), "1/minute")

    app = FastAPI()
    tg = Tidegate(app)
    app.get("/decorated")(tg.limit(plan)(plain_endpoint()))
    app.get("/depends", dependencies=[Depends(RateLimit(plan))])(plain_endpoint())
    app.get("/default")(plain_endpoint())
    defaulted = FastAPI()
    Tidegate(defaulted, default=plan)
    defaulted.get("/default")(plain_endpoint())
    for one, path in ((app, "/decorated"), (app, "/depends"), (defaulted, "/default")):
        assert statuses(one, *[path] * 2) == [200, 429], path
        assert statuses(one, *[path] * 3, headers={"X-Plan": "pro"}) == [200, 200, 429], path
        assert statuses(one, *[path] * 4, headers={"X-Plan": "staff"}) == [200] * 4, path


@pytest.mark.parametrize("by_environment", [False, True])
def test_nothing_is_limited_when_it_is_not_enabled(by_environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_environment:
        monkeypatch.setenv("TIDEGATE_ENABLED", "false")
    options: Any = {} if by_environment else {"enabled": False}
    app = FastAPI()
    tg = Tidegate(app, default="1/minute", application="1/minute", **options)
    app.get("/")(plain_endpoint())
    app.get("/own")(tg.limit("1/minute")(plain_endpoint()))

    @app.get("/depends")
    async def depends(decision: Five) -> bool:
        return decision is None

    for path in ("/", "/own", "/depends"):
        for _ in range(3):
            seen = call_asgi(app, path=path)
            assert seen.status == 200 and "RateLimit" not in seen
    assert call_asgi(app, path="/depends").body == b"true"
    middleware = TidegateMiddleware(Starlette(), "1/minute", **options)
    assert statuses(middleware, "/", "/", "/") == [404] * 3


def test_one_limit_that_is_not_enabled() -> None:
    app = FastAPI()
    tg = Tidegate(app, default="2/minute")
    app.get("/own")(tg.limit("1/minute", enabled=False)(plain_endpoint()))
    app.get("/depends", dependencies=[Depends(RateLimit("1/minute", enabled=False))])(plain_endpoint())
    assert statuses(app, "/own", "/own", "/own") == [200, 200, 429], "the default applies"
    assert statuses(app, "/depends", "/depends", "/depends") == [200] * 3


def test_the_journal_says_who_was_behind_an_address() -> None:
    limiter = Limiter(policies={"p": {"limits": "5/minute", "journal": 10}})
    app = FastAPI()
    tg = Tidegate(app, limiter=limiter, meta=lambda request: request.headers.get("x-user"))
    app.get("/own")(tg.limit("p")(plain_endpoint()))
    app.get("/depends", dependencies=[Depends(RateLimit("p", meta=lambda request: "fixed"))])(plain_endpoint())
    for name in ("alice", "bob"):
        call_asgi(app, path="/own", headers={"X-User": name})
    call_asgi(app, path="/depends")
    assert [entry.meta for entry in limiter.journal("p", "203.0.113.9")] == ["fixed", "bob", "alice"]


# Users


class Authenticated:
    is_authenticated = True
    username = "alice"


async def authenticate(request: Request) -> None:
    name = request.headers.get("x-user")
    request.state.user = name
    request.state.claims = {"sub": name} if name else None


KEYS = [user(), claim("sub")]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_dependency_that_authenticates_stands_before_the_limit(key: Any) -> None:
    limiter = Limiter(policies={"p": "1/minute"})
    app = FastAPI()
    Tidegate(app, limiter=limiter)
    app.get("/", dependencies=[Depends(authenticate), Depends(RateLimit("p", key=key))])(plain_endpoint())
    for name in ("alice", "bob"):
        assert statuses(app, "/", "/", headers={"X-User": name}) == [200, 429]
    assert limiter.peek("p", "alice").remaining == 0
    # An anonymous request counts for its address.
    assert statuses(app, "/", "/") == [200, 429]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("way", ["decorator", "default", "depends"])
def test_authentication_that_runs_later_raises(key: Any, way: str) -> None:
    app = FastAPI()
    tg = Tidegate(app, key=key, default="1/minute" if way == "default" else None)
    limited = tg.limit("1/minute") if way == "decorator" else lambda view: view
    limits = [Depends(RateLimit("1/minute"))] if way == "depends" else []
    app.get("/", dependencies=[*limits, Depends(authenticate)])(limited(plain_endpoint()))
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"no authentication has run before.*Depends\(RateLimit\(…\)\) stands after"
        ):
            call_asgi(app, headers={"X-User": "alice"})


def test_authentication_by_middleware() -> None:
    class Backend:
        async def authenticate(self, connection: Any) -> Any:
            from starlette.authentication import AuthCredentials, SimpleUser

            name = connection.headers.get("x-user")
            return (AuthCredentials(), SimpleUser(name)) if name else None

    app = FastAPI()
    Tidegate(app, default="1/minute", key=user())
    app.get("/")(plain_endpoint())
    app.add_middleware(AuthenticationMiddleware, backend=Backend())  # type: ignore[arg-type]
    for name in ("alice", "bob"):
        assert statuses(app, "/", "/", headers={"X-User": name}) == [200, 429]
    assert statuses(app, "/", "/") == [200, 429]


def test_a_key_for_requests_without_authentication() -> None:
    app = FastAPI()
    Tidegate(app, default="1/minute", key=user(otherwise=client_ip()))
    app.get("/")(plain_endpoint())
    assert statuses(app, "/", "/") == [200, 429]


# A missing store


def missing(way: str) -> FastAPI:
    app = FastAPI()
    options: Any = {"application": "1/minute"} if way == "application" else {}
    tg = Tidegate(app, store="redis://127.0.0.1:1/0", on_store_error="raise", **options)
    limited = tg.limit("1/minute") if way == "decorator" else lambda view: view
    limits = [Depends(RateLimit("1/minute"))] if way == "depends" else []
    app.get("/", dependencies=limits)(limited(plain_endpoint()))
    return app


@pytest.mark.parametrize("way", ["decorator", "depends", "application"])
def test_a_missing_store_is_503_when_the_policy_says_raise(way: str) -> None:
    seen = call_asgi(missing(way))
    assert seen.status == 503 and seen["Content-Type"] == "application/problem+json"
    assert json.loads(seen.body)["status"] == 503 and seen["Retry-After"] == "1" and "RateLimit" not in seen
    assert call_asgi(missing(way), path="/no").status == (503 if way == "application" else 404)


@pytest.mark.parametrize("way", ["decorator", "depends", "application"])
@pytest.mark.parametrize("kind", [StoreError, 503])
def test_handlers_may_answer_for_a_missing_store(way: str, kind: Any) -> None:
    app = missing(way)

    async def handler(request: Request, error: Any) -> PlainTextResponse:
        assert isinstance(error, StoreError) and error.code == "store_unavailable" and error.status_code == 503
        return PlainTextResponse("later", 503)

    app.add_exception_handler(kind, handler)
    seen = call_asgi(app)
    assert (seen.status, seen.body) == (503, b"later")


def test_a_websocket_without_a_store_is_closed() -> None:
    app = FastAPI()
    tg = Tidegate(app, store="redis://127.0.0.1:1/0", on_store_error="raise")

    @app.websocket("/ws")
    @tg.limit("1/minute")
    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()

    (seen,) = asyncio.run(websocket(app))
    assert (seen["type"], seen["code"]) == ("websocket.close", 1013)
    start, _ = asyncio.run(websocket(app, {"websocket.http.response": {}}))
    assert start["status"] == 503


def test_a_bare_asgi_application_without_a_store_is_503() -> None:
    app = TidegateMiddleware(Starlette(), "1/minute", store="redis://127.0.0.1:1/0", on_store_error="raise")
    seen = call_asgi(app)
    assert seen.status == 503 and seen["Content-Type"] == "application/problem+json" and seen["Retry-After"] == "1"
    (closed,) = asyncio.run(websocket(app))
    assert (closed["type"], closed["code"]) == ("websocket.close", 1013)


def test_limits_go_on_when_their_time_has_come() -> None:
    clock = ManualClock(1_700_000_000.0)
    app = FastAPI()
    Tidegate(app, clock=clock, default="fixed-window 1/minute")
    app.get("/")(plain_endpoint())
    assert statuses(app, "/", "/") == [200, 429]
    clock.advance(60)
    assert statuses(app, "/", "/") == [200, 429]
