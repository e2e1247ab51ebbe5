"""FastAPI and Starlette: wrong use raises, where it is written or with the first request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.endpoints import HTTPEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse

from tidegate import ConfigError, KeyInvalid
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate
from web import call_asgi, plain_endpoint, websocket


def test_a_decorator_in_the_wrong_order_raises() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    with pytest.raises(ConfigError, match="below @app"):

        @tg.limit("1/minute")
        @app.get("/")
        async def endpoint() -> str:
            return "wrong"


def test_a_tidegate_that_was_never_attached_raises() -> None:
    app = FastAPI()
    tg = Tidegate()

    @app.get("/decorated")
    @tg.limit("1/minute")
    async def decorated() -> str:
        return "decorated"

    app.get("/depends", dependencies=[Depends(RateLimit("1/minute"))])(plain_endpoint())
    app.websocket("/ws")(decorated)
    with pytest.raises(ConfigError, match="not attached"):
        call_asgi(app, path="/decorated")
    with pytest.raises(ConfigError, match="attach one"):
        call_asgi(app, path="/depends")
    with pytest.raises(ConfigError, match="not attached"):
        asyncio.run(websocket(app))
    other = FastAPI()
    Tidegate(other)
    other.get("/decorated")(decorated)
    with pytest.raises(ConfigError, match="not attached"):
        call_asgi(other, path="/decorated")


def test_a_key_of_none_raises_in_a_dependency() -> None:
    app = FastAPI()
    Tidegate(app)
    app.get("/", dependencies=[Depends(RateLimit("1/minute", key=lambda request: None))])(plain_endpoint())
    with pytest.raises(KeyInvalid, match="returned nothing"):
        call_asgi(app)


def test_wrong_use_raises() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    with pytest.raises(ConfigError, match="already"):
        tg.init_app(app)
    with pytest.raises(ConfigError, match="FastAPI or Starlette"):
        Tidegate("app")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is given as a policy"):
        tg.limit(plain_endpoint())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="before the first request"):
        served = FastAPI()
        call_asgi(served)
        Tidegate(served)


def wrapping(view: Any) -> Any:
    """A decorator without functools.wraps."""

    async def wrapper(request: Request) -> Any:
        return PlainTextResponse("wrapped")

    wrapper.view = view  # type: ignore[attr-defined]
    return wrapper


def starts(app: Any) -> None:
    """Starts an application as a server does. Raises if it does not start."""

    async def main() -> None:
        sent: list[Any] = []
        received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(received)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        try:
            await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
        except ConfigError:
            # After this message a server does not go on without the lifespan.
            assert sent == ["lifespan.startup.failed"]
            raise
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(main())


class Handler:
    async def __call__(self, request: Request) -> Any:
        return PlainTextResponse("handler")


class Slotted:
    __slots__ = ()

    async def __call__(self) -> str:
        return "slotted"


def hidden(app: Any, tg: Any) -> Any:
    @app.get("/")
    @wrapping
    @tg.limit("1/minute")
    async def target(request: Request) -> str:
        return "hidden"


def helper(app: Any, tg: Any) -> Any:
    @tg.limit("1/minute")
    async def target() -> str:
        return "helper"

    @app.get("/")
    async def endpoint() -> str:
        return await target()


def dependency(app: Any, tg: Any) -> Any:
    @tg.limit("1/minute")
    async def target() -> str:
        return "session"

    @app.get("/")
    async def endpoint(session: str = Depends(target)) -> str:
        return session


def static_method(app: Any, tg: Any) -> Any:
    class Views:
        @tg.limit("1/minute")
        @staticmethod
        async def target() -> str:
            return "static"

    app.get("/")(Views.target)


def hidden_in_a_class(app: Any, tg: Any) -> Any:
    class View(HTTPEndpoint):
        @wrapping
        @tg.limit("1/minute")
        async def target(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("get")

        get = target

    app.add_route("/", View)


def exempt_and_hidden(app: Any, tg: Any) -> Any:
    @app.get("/")
    @wrapping
    @tg.exempt
    async def target(request: Request) -> str:
        return "hidden"


UNROUTED = [hidden, helper, dependency, static_method, hidden_in_a_class, exempt_and_hidden]


@pytest.mark.parametrize("write", UNROUTED, ids=lambda write: write.__name__)
def test_a_limit_that_no_route_meets_raises_at_the_start_and_with_each_request(write: Any) -> None:
    app = FastAPI()
    write(app, Tidegate(app))
    with pytest.raises(ConfigError, match=rf"{write.__name__}.*target.*no route calls.*below @app"):
        starts(app)
    # Servers without a lifespan, and tests, get the error with each request.
    for _ in range(3):
        with pytest.raises(ConfigError, match="no route calls"):
            call_asgi(app)


def test_routes_that_the_start_adds_are_known() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> Any:
        app.get("/")(later)
        yield

    app = FastAPI(lifespan=lifespan)
    later = Tidegate(app).limit("1/minute")(plain_endpoint())
    starts(app)


def test_decorators_that_keep_the_function_are_looked_through() -> None:
    def keeping(view: Any) -> Any:
        @functools.wraps(view)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await view(*args, **kwargs)

        return wrapper

    app = FastAPI()
    tg = Tidegate(app)
    app.get("/")(keeping(tg.limit("2/minute")(keeping(tg.limit("1/minute")(plain_endpoint())))))
    app.get("/partial")(functools.partial(tg.limit("1/minute")(plain_endpoint())))
    starts(app)
    for path in ("/", "/partial"):
        assert [call_asgi(app, path=path).status for _ in range(2)] == [200, 429]


def test_a_callable_object_is_limited() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    handler = tg.limit("1/minute")(Handler())
    app.get("/")(handler)
    assert [call_asgi(app).status for _ in range(2)] == [200, 429]


def test_a_router_that_is_not_included_raises_nothing() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    APIRouter().get("/")(tg.limit("1/minute")(plain_endpoint()))
    starts(app)


@pytest.mark.parametrize("view", [Slotted(), len], ids=["slots", "built in"])
def test_what_cannot_carry_a_limit_raises(view: Any) -> None:
    with pytest.raises(ConfigError, match="cannot carry a limit"):
        Tidegate(FastAPI()).limit("1/minute")(view)


def test_a_limit_above_the_route_of_a_router_raises() -> None:
    tg = Tidegate(FastAPI())
    router = APIRouter()
    with pytest.raises(ConfigError, match="stands above the route"):

        @tg.limit("1/minute")
        @router.get("/")
        async def endpoint() -> str:
            return "wrong"


@pytest.mark.parametrize(
    "made", [FastAPI, APIRouter, lambda: CORSMiddleware(FastAPI())], ids=["app", "router", "behind"]
)
def test_a_limit_on_what_has_routes_raises(made: Any) -> None:
    tg = Tidegate(FastAPI())
    for decorate in (tg.limit("1/minute"), tg.exempt):
        with pytest.raises(ConfigError, match="has routes: limit or exempt these"):
            decorate(made())


def test_an_asgi_middleware_outside_does_not_disturb() -> None:
    """Both layers put something into the scope."""
    for inside in (False, True):
        app = FastAPI()
        app.get("/")(plain_endpoint())
        if inside:
            Tidegate(app, default="5/minute")
        limited = TidegateMiddleware(app, "1/minute")
        assert [call_asgi(limited).status for _ in range(2)] == [200, 429]
