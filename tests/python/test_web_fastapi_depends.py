"""Limits as dependencies of FastAPI, and the Decision that an endpoint reads."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from starlette.responses import JSONResponse

from tidegate import Decision, Limiter, PolicyError
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate
from web import SeenResponse, call_asgi, plain_endpoint, websocket

# FastAPI looks up the names of annotations in the globals of a module.
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

    # A request that one limit refused is not charged to the others.
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
