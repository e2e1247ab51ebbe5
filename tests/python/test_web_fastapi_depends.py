"""Limits as dependencies of FastAPI, and the Decision that an endpoint reads."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse, PlainTextResponse

from tidegate import ConfigError, Decision, Limiter, ManualClock, PolicyError, StoreError
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate, claim, client_ip, user
from web import SeenResponse, call_asgi, plain_endpoint, websocket

# FastAPI reads annotations in the globals of a module.
FIVE = RateLimit("5/minute")
Five = Annotated[Decision | None, Depends(FIVE)]
NAMED = RateLimit("p")


def get(app: Any, path: str = "/", **more: Any) -> SeenResponse:
    return call_asgi(app, path=path, **more)


def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    return [call_asgi(app, path=path, **more).status for path in paths]


def left(decision: Any) -> dict[str, Any]:
    assert decision is None or isinstance(decision, Decision)
    return {} if decision is None else {"policy": decision.policy, "remaining": decision.remaining}


# The Decision


def test_a_dependency_gives_its_decision() -> None:
    app = FastAPI()
    Tidegate(app)

    @app.get("/")
    async def endpoint(decision: Five, request: Request) -> Any:
        assert request.state.rate_limit is decision
        return left(decision)

    @app.get("/skipped")
    async def skipped(decision: Annotated[Any, Depends(RateLimit("1/minute", skip=lambda request: True))]) -> Any:
        return left(decision)

    assert [json.loads(get(app).body)["remaining"] for _ in range(2)] == [4, 3]
    assert json.loads(get(app, "/skipped").body) == {}


@pytest.mark.parametrize("where", ["decorator", "default", "application", "none", "exempt"])
def test_the_decision_is_in_the_state_of_the_request(where: str) -> None:
    limiter = Limiter(policies={"p": "5/minute"})
    app = FastAPI()
    tg = Tidegate(app, limiter=limiter, **({where: "p"} if where in ("default", "application") else {}))

    async def endpoint(request: Request) -> Any:
        assert request.scope.get("tidegate.decision") is request.state.rate_limit
        return left(request.state.rate_limit)

    limited = {"decorator": tg.limit("p"), "exempt": tg.exempt}.get(where, lambda view: view)
    app.get("/")(limited(endpoint))
    assert json.loads(get(app).body) == ({} if where in ("none", "exempt") else {"policy": "p", "remaining": 4})


def test_several_policies_are_one_decision() -> None:
    app = FastAPI()
    tg = Tidegate(app, policies={"a": "5/minute", "all": "9/minute"}, application="all")

    @app.get("/")
    @tg.limit("a")
    async def endpoint(request: Request) -> Any:
        return [left(one) for one in request.state.rate_limit.decisions]

    assert json.loads(get(app).body) == [{"policy": "a", "remaining": 4}, {"policy": "all", "remaining": 8}]


def test_handlers_and_middleware_read_the_decision() -> None:
    app = FastAPI()
    Tidegate(app, default="1/minute")
    app.get("/")(plain_endpoint())
    seen_outside: list[Any] = []

    @app.middleware("http")
    async def observe(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        seen_outside.append(request.state.rate_limit)
        return response

    app.add_exception_handler(429, lambda request, error: JSONResponse(left(request.state.rate_limit), 429))
    assert get(app).status == 200
    assert json.loads(get(app).body)["remaining"] == 0
    assert [bool(decision) for decision in seen_outside] == [True, False]


def test_a_websocket_has_its_decision() -> None:
    app = FastAPI()
    tg = Tidegate(app)

    @app.websocket("/ws")
    @tg.limit("9/minute")
    async def endpoint(socket: WebSocket, decision: Five) -> None:
        await socket.accept()
        assert socket.state.rate_limit is decision and decision is not None
        await socket.send_text(str(decision.remaining))
        await socket.close()

    assert asyncio.run(websocket(app))[1]["text"] == "4"


def test_an_asgi_scope_has_the_decision() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["tidegate.decision"] is scope["state"]["rate_limit"]
        body = str(scope["tidegate.decision"].remaining).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    assert get(TidegateMiddleware(app, "5/minute")).body == b"4"
    assert get(TidegateMiddleware(app, ["5/minute", "3/hour"])).status == 200


# Dependencies


def inner(decision: Annotated[Any, Depends(NAMED)]) -> Any:
    return decision


def test_one_dependency_is_asked_once() -> None:
    limiter = Limiter(policies={"p": "9/minute"})
    app = FastAPI(dependencies=[Depends(NAMED)])
    Tidegate(app, limiter=limiter)
    router = APIRouter(dependencies=[Depends(NAMED)])

    @router.get("/", dependencies=[Depends(NAMED), Depends(NAMED, use_cache=False)])
    async def endpoint(
        one: Annotated[Any, Depends(NAMED)],
        two: Annotated[Any, Depends(inner)],
        three: Annotated[Any, Depends(NAMED, use_cache=False)],
    ) -> bool:
        return one is two is three

    app.include_router(router)
    seen = get(app)
    assert seen.body == b"true" and seen["X-RateLimit-Remaining"] == "8"
    assert limiter.peek("p", "203.0.113.9").remaining == 8


def test_limits_of_an_application_a_router_and_a_route() -> None:
    limiter = Limiter(policies={"app": "9/minute", "router": "3/minute", "route": "2/minute", "own": "8/minute"})
    app = FastAPI(dependencies=[Depends(RateLimit("app"))])
    tg = Tidegate(app, limiter=limiter)
    router = APIRouter(dependencies=[Depends(RateLimit("router"))])
    router.get("/a", dependencies=[Depends(RateLimit("route"))])(tg.limit("own")(plain_endpoint()))
    router.get("/b")(plain_endpoint())
    app.include_router(router)
    app.get("/c")(plain_endpoint())
    seen = get(app, "/a")
    assert set(seen.items("RateLimit")) == {"app", "router", "route", "own"}
    assert statuses(app, "/a", "/a", "/b", "/b", "/c") == [200, 429, 200, 429, 200]

    def remaining(name: str) -> int:
        return limiter.peek(name, "203.0.113.9").remaining

    # What one limit refused costs nothing of the others.
    assert [remaining(name) for name in ("app", "router", "route", "own")] == [5, 0, 0, 6]


def test_a_refusal_after_others_gives_back_once() -> None:
    limiter = Limiter(policies={"first": "5/minute", "second": "1/minute", "held": "concurrency 1"})
    app = FastAPI()
    tg = Tidegate(app, limiter=limiter)
    app.get("/", dependencies=[Depends(RateLimit("second"))])(
        tg.limit(["first", "held"], refund_when=lambda response: response.status_code == 429)(plain_endpoint())
    )
    assert statuses(app, "/", "/", "/") == [200, 429, 429]
    assert limiter.peek("first", "203.0.113.9").remaining == 4
    assert limiter.peek("held", "203.0.113.9").remaining == 1


def test_a_dependency_is_overridden_in_tests() -> None:
    app = FastAPI()
    limit = RateLimit("1/minute")
    Tidegate(app, default="1/minute")
    app.get("/", dependencies=[Depends(limit)])(plain_endpoint())
    app.dependency_overrides[limit] = lambda: None
    assert statuses(app, "/", "/", "/") == [200] * 3
    app.dependency_overrides.clear()
    assert statuses(app, "/", "/") == [200, 429]


def test_an_override_that_brings_a_limit_replaces_the_default() -> None:
    app = FastAPI()
    limiter = Limiter(policies={"all": "9/minute", "default": "5/minute"})
    Tidegate(app, limiter=limiter, default="default", application="all")

    def nothing() -> None:
        return None

    app.get("/", dependencies=[Depends(nothing)])(plain_endpoint())
    app.dependency_overrides[nothing] = RateLimit("1/minute")
    assert statuses(app, "/", "/") == [200, 429]
    assert limiter.peek("default", "203.0.113.9").remaining == 5
    assert limiter.peek("all", "203.0.113.9").remaining == 8


def test_a_wrong_dependency_raises_where_it_is_written() -> None:
    with pytest.raises(PolicyError):
        RateLimit("5/minut")
    with pytest.raises(TypeError, match="did you mean 'key'"):
        RateLimit("5/minute", kee="k")  # type: ignore[call-arg]


def test_a_dependency_with_an_unknown_name_raises_at_the_start() -> None:
    app = FastAPI()
    Tidegate(app)
    inner_app = FastAPI()
    inner_app.get("/", dependencies=[Depends(RateLimit("unknown"))])(plain_endpoint())
    app.mount("/inner", inner_app)
    with pytest.raises(PolicyError, match="unknown"):
        asyncio.run(started(app))
    with pytest.raises(PolicyError, match="unknown"):
        get(app, "/nothing")


async def started(app: Any) -> None:
    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        assert message["type"] == "lifespan.startup.failed"

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


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
            seen = get(app, path)
            assert seen.status == 200 and "RateLimit" not in seen
    assert get(app, "/depends").body == b"true"
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
        get(app, "/own", headers={"X-User": name})
    get(app, "/depends")
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
        with pytest.raises(ConfigError, match=r"no authentication has run before.*Depends\(RateLimit\(…\)\) stands after"):
            get(app, headers={"X-User": "alice"})


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
    seen = get(missing(way))
    assert seen.status == 503 and seen["Content-Type"] == "application/problem+json"
    assert json.loads(seen.body)["status"] == 503 and seen["Retry-After"] == "1" and "RateLimit" not in seen
    assert get(missing(way), "/no").status == (503 if way == "application" else 404)


@pytest.mark.parametrize("way", ["decorator", "depends", "application"])
@pytest.mark.parametrize("kind", [StoreError, 503])
def test_handlers_may_answer_for_a_missing_store(way: str, kind: Any) -> None:
    app = missing(way)

    async def handler(request: Request, error: Any) -> PlainTextResponse:
        assert isinstance(error, StoreError) and error.code == "store_unavailable" and error.status_code == 503
        return PlainTextResponse("later", 503)

    app.add_exception_handler(kind, handler)
    seen = get(app)
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
    seen = get(app)
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
