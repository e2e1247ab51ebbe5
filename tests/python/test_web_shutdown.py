"""A layer closes the limiter that it has made when its application shuts down, and leaves a given one open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import tidegate.fastapi
from tidegate import AsyncLimiter, ClosedError, Limiter
from tidegate.asgi import TidegateMiddleware
from web import acall

# An application, and the layer that limits it.
LimitedApp = tuple[Any, Any]


def in_fastapi(**options: Any) -> LimitedApp:
    app = FastAPI()
    tg = tidegate.fastapi.Tidegate(app, default="5/minute", **options)

    @app.get("/")
    async def index() -> str:
        return "index"

    return app, tg


def starlette() -> Starlette:
    async def index(request: Any) -> PlainTextResponse:
        return PlainTextResponse("index")

    return Starlette(routes=[Route("/", index)])


def in_starlette(**options: Any) -> LimitedApp:
    app = starlette()
    return app, tidegate.fastapi.Tidegate(app, default="5/minute", **options)


def in_asgi(**options: Any) -> LimitedApp:
    app = TidegateMiddleware(starlette(), "5/minute", **options)
    return app, app


WAYS = [in_fastapi, in_starlette, in_asgi]


@contextlib.asynccontextmanager
async def running(app: Any) -> AsyncIterator[None]:
    """Starts and shuts down an application as a server does."""
    received: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    received.put_nowait({"type": "lifespan.startup"})
    task = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, sent.put)
    )
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        received.put_nowait({"type": "lifespan.shutdown"})
        assert (await sent.get())["type"] == "lifespan.shutdown.complete"
        await task


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[..., LimitedApp]:
    made: Callable[..., LimitedApp] = request.param
    return made


def test_a_limiter_that_the_layer_made_is_closed(way: Callable[..., LimitedApp], store: str, prefix: str) -> None:
    async def main() -> None:
        app, tg = way(store=store, prefix=prefix)
        async with running(app):
            assert (await acall(app)).status == 200
            limiter = tg.limiter
            await limiter.check("5/s", "k")
        with pytest.raises(ClosedError):
            await limiter.check("5/s", "k")

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_limiter_that_was_given_stays_open(way: Callable[..., LimitedApp], kind: Any) -> None:
    limiter = kind(policies={"p": "5/minute"})

    async def main() -> None:
        app, tg = way(limiter=limiter)
        for _ in range(2):
            async with running(app):
                assert (await acall(app)).status == 200
        assert (await tg.limiter.check("p", "k")).remaining == 4

    asyncio.run(main())
    assert (limiter if kind is Limiter else limiter.to_blocking()).peek("p", "k").remaining == 4


def test_an_application_may_be_started_again_and_called_without_a_start(way: Callable[..., LimitedApp]) -> None:
    async def main() -> None:
        app, _ = way()
        assert (await acall(app))["X-RateLimit-Remaining"] == "4"
        async with running(app):
            assert (await acall(app))["X-RateLimit-Remaining"] == "3"
        # A store in memory ends with its limiter, so the count begins again.
        assert (await acall(app))["X-RateLimit-Remaining"] == "4"
        async with running(app):
            assert (await acall(app))["X-RateLimit-Remaining"] == "3"
        async with running(app):
            assert (await acall(app))["X-RateLimit-Remaining"] == "4"

    asyncio.run(main())


def test_the_last_application_closes_what_several_share() -> None:
    async def main() -> None:
        one, other = starlette(), starlette()
        tg = tidegate.fastapi.Tidegate(one, default="5/minute")
        tg.init_app(other)
        limiter = tg.limiter
        async with running(one):
            async with running(other):
                pass
            assert await limiter.check("5/s", "k")
            assert (await acall(one)).status == 200
        with pytest.raises(ClosedError):
            await limiter.check("5/s", "k")

    asyncio.run(main())


def test_the_failure_of_an_application_to_start_is_passed_on(way: Callable[..., LimitedApp]) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    async def main() -> None:
        app, tg = way()
        inner: Any = app.app if isinstance(app, TidegateMiddleware) else app
        inner.router.lifespan_context = lifespan
        with pytest.raises(AssertionError, match=r"startup\.failed"):
            async with running(app):
                pass
        assert await tg.limiter.check("5/s", "k")

    asyncio.run(main())
