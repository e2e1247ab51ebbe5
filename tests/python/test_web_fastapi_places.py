"""FastAPI and Starlette: the names under which notations count."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

from tidegate import Limiter
from tidegate.fastapi import RateLimit, Tidegate
from tidegate.http import placed_key
from web import call_asgi, plain_endpoint

TWO = "2/minute"


async def plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plain")


def statuses(app: Any, *paths: str) -> list[int]:
    return [call_asgi(app, path=path).status for path in paths]


def test_a_notation_counts_for_its_place() -> None:
    app = FastAPI()
    tg = Tidegate(app)
    partial = functools.partial

    def greet(name: str) -> str:
        return name

    class Callable:
        async def __call__(self) -> str:
            return "called"

        async def method(self) -> str:
            return "method"

    made = {
        "closures": (plain_endpoint(), plain_endpoint()),
        "lambdas": (lambda: "a", lambda: "b"),
        "partials": (partial(greet, name="a"), partial(greet, name="b")),
        "objects": (Callable(), Callable()),
        "methods": (Callable().method, Callable().method),
    }
    for name, endpoints in made.items():
        for number, endpoint in enumerate(endpoints):
            app.get(f"/{name}/{number}")(tg.limit("1/minute")(endpoint))
    for name in made:
        assert statuses(app, *[f"/{name}/0", f"/{name}/1"] * 2) == [200, 200, 429, 429], name


def test_two_paths_of_one_endpoint_are_one_view() -> None:
    app = FastAPI()
    tg = Tidegate(app, default=TWO)
    limited, free = tg.limit(TWO)(plain_endpoint()), plain_endpoint()
    for path in ("/a", "/a-too"):
        app.get(path)(limited)
    for path in ("/b", "/b-too"):
        app.get(path)(free)
    assert statuses(app, "/a", "/a-too", "/a") == [200, 200, 429]
    assert statuses(app, "/b", "/b-too", "/b") == [200, 200, 429]


def test_a_place_has_the_same_name_in_every_process() -> None:
    limiter = Limiter()
    app = Starlette()
    Tidegate(app, limiter=limiter, default=TWO)
    app.add_route("/a", plain)
    assert call_asgi(app, path="/a").status == 200
    name = f"{plain.__module__}.plain"
    assert limiter.peek(TWO, f"{name} 203.0.113.9").remaining == 1

    app = FastAPI()
    tg = Tidegate(app, limiter=limiter)
    inner = FastAPI()
    inner.get("/items/{item}")(tg.limit(TWO)(plain_endpoint()))
    inner.get("/d/{item}", dependencies=[Depends(RateLimit(TWO))])(plain_endpoint())
    app.mount("/{tenant}/inner", inner)
    assert call_asgi(app, path="/acme/inner/items/1").status == 200
    assert call_asgi(app, path="/acme/inner/d/1").status == 200
    endpoint = "web.plain_endpoint.<locals>.endpoint"
    assert limiter.peek(TWO, placed_key(f"{endpoint} /{{tenant}}/inner/items/{{item}}", "203.0.113.9")).remaining == 1
    assert limiter.peek(TWO, placed_key(f"/{{tenant}}/inner/d/{{item}} {endpoint}", "203.0.113.9")).remaining == 1
