"""FastAPI and Starlette: wrong use raises, where it is written or with the first request."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import Depends, FastAPI

from tidegate import ConfigError, KeyInvalid
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
    with pytest.raises(ConfigError, match="has no policy"):
        tg.limit(plain_endpoint())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="before the first request"):
        served = FastAPI()
        call_asgi(served)
        Tidegate(served)
