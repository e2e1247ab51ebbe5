"""The handlers of aiohttp.web, Quart and Sanic: defaults, exemptions, class views, refusals, and misuse.

The contract tests have the behaviour that all web layers share.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tidegate import ConfigError, Limiter, RateLimited
from web import SeenResponse, call_aiohttp, call_asgi, call_sanic

_numbers = itertools.count()


class Aiohttp:
    """Makes an application of one framework, with its routes."""

    name, call = "aiohttp.web", staticmethod(call_aiohttp)

    def __init__(self, **options: Any) -> None:
        from aiohttp import web

        from tidegate.aiohttp_web import Tidegate

        self.app = web.Application()
        self.tg = Tidegate(self.app, **options)

    def view(self) -> Any:
        from aiohttp import web

        async def view(*_: Any) -> web.Response:
            return web.Response(text="ok")

        return view

    def view_class(self, limit: Callable[[Any], Any]) -> Any:
        from aiohttp import web

        class View(web.View):
            get = self.view()
            post = limit(self.view())

        return View

    def add(self, path: str, view: Any) -> None:
        self.app.router.add_route("*", path, view)

    def authenticate(self, user: str) -> None:
        from aiohttp import web

        from tidegate.aiohttp_web import USER

        @web.middleware
        async def authenticate(request: Any, handler: Any) -> Any:
            request[USER] = user
            return await handler(request)

        self.app.middlewares.insert(0, authenticate)

    def answer_refusals(self) -> None:
        from aiohttp import web

        @web.middleware
        async def answer(request: Any, handler: Any) -> Any:
            try:
                return await handler(request)
            except RateLimited as error:
                return web.Response(text=f"wait {error.decision.retry_after:.0f}", status=420)

        self.app.middlewares.insert(0, answer)


class Quart:
    name, call = "quart", staticmethod(call_asgi)

    def __init__(self, **options: Any) -> None:
        import quart

        from tidegate.quart import Tidegate

        self.app = quart.Quart("app")
        self.app.config["PROPAGATE_EXCEPTIONS"] = True
        self.tg = Tidegate(self.app, **options)

    def view(self) -> Any:
        async def view(*_: Any) -> str:
            return "ok"

        return view

    def view_class(self, limit: Callable[[Any], Any]) -> Any:
        from quart.views import MethodView

        class View(MethodView):
            get = self.view()
            post = limit(self.view())

        return View.as_view("view")

    def add(self, path: str, view: Any) -> None:
        self.app.add_url_rule(path, f"view{next(_numbers)}", view, methods=["GET", "POST"])

    def authenticate(self, user: str) -> None:
        import quart

        self.app.before_request(lambda: setattr(quart.g, "user", user))

    def answer_refusals(self) -> None:
        @self.app.errorhandler(RateLimited)
        async def answer(error: Any) -> Any:
            return f"wait {error.decision.retry_after:.0f}", 420


class Sanic:
    name, call = "sanic", staticmethod(call_sanic)

    def __init__(self, **options: Any) -> None:
        import sanic

        from tidegate.sanic import Tidegate

        self.app: Any = sanic.Sanic(f"handlers{next(_numbers)}", configure_logging=False)
        self.app.config.TOUCHUP = False
        self.tg = Tidegate(self.app, **options)

    def view(self) -> Any:
        from sanic import text

        def view(*_: Any) -> Any:
            return text("ok")

        return view

    def view_class(self, limit: Callable[[Any], Any]) -> Any:
        from sanic.views import HTTPMethodView

        class View(HTTPMethodView):
            get = self.view()
            post = limit(self.view())

        return View.as_view()

    def add(self, path: str, view: Any) -> None:
        methods = None if hasattr(view, "view_class") else ["GET", "POST"]
        self.app.add_route(view, path, name=f"view{next(_numbers)}", **({"methods": methods} if methods else {}))

    def authenticate(self, user: str) -> None:
        self.app.on_request(lambda request: setattr(request.ctx, "user", user))

    def answer_refusals(self) -> None:
        from sanic import text

        @self.app.exception(RateLimited)
        async def answer(request: Any, error: Any) -> Any:
            return text(f"wait {error.decision.retry_after:.0f}", 420)

        @self.app.exception(Exception)
        async def answer_others(request: Any, error: Any) -> Any:
            return text("no refusal", 500)


OPTIONAL = {"aiohttp": Aiohttp, "quart": Quart, "sanic": Sanic}
FRAMEWORKS = [one for name, one in OPTIONAL.items() if importlib.util.find_spec(name)]
each = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)


def statuses(made: Any, *paths: str) -> list[int]:
    return [made.call(made.app, path=path).status for path in paths]


@each
def test_a_handler_without_a_limit_has_the_default(framework: Any) -> None:
    made = framework(default="1/hour", application="4/hour")
    made.add("/a", made.view())
    made.add("/b", made.view())
    made.add("/own", made.tg.limit("2/hour")(made.view()))
    made.add("/free", made.tg.exempt(made.view()))
    assert statuses(made, "/a", "/a", "/b", "/own", "/free") == [200, 429, 200, 200, 200]
    assert "RateLimit" not in made.call(made.app, path="/free")
    # A request without a route counts for the application.
    assert statuses(made, "/none", "/own", "/none") == [404, 429, 429]


@each
def test_a_method_of_a_class_has_its_own_limit(framework: Any) -> None:
    made = framework()
    made.add("/", made.view_class(made.tg.limit("1/hour")))
    assert [made.call(made.app, "POST").status for _ in range(2)] == [200, 429]
    assert [made.call(made.app).status for _ in range(2)] == [200, 200]


@each
def test_the_application_may_answer_a_refusal(framework: Any) -> None:
    made = framework(default="1/hour")
    made.answer_refusals()
    made.add("/", made.view())
    made.call(made.app)
    seen: SeenResponse = made.call(made.app)
    assert (seen.status, seen.body[:5]) == (420, b"wait ")
    assert "RateLimit" in seen


@each
def test_a_user_of_the_framework_is_a_key(framework: Any) -> None:
    from tidegate.http import user

    limiter = Limiter(policies={"p": "1/hour"})
    made = framework(limiter=limiter)
    made.add("/", made.tg.limit("p", key=user())(made.view()))
    with pytest.raises(ConfigError, match="no authentication has run before it"):
        made.call(made.app)
    made = framework(limiter=limiter)
    made.authenticate("alice")
    made.add("/", made.tg.limit("p", key=user())(made.view()))
    assert statuses(made, "/", "/") == [200, 429]
    assert limiter.peek("p", "alice").remaining == 0


@each
def test_a_limit_without_effect_is_an_error(framework: Any) -> None:
    made, other = framework(), framework()
    # Another application has the Tidegate of this limit.
    made.add("/", other.tg.limit("1/hour")(made.view()))
    with pytest.raises(ConfigError, match="not attached to the application"):
        made.call(made.app)
    with pytest.raises(ConfigError, match="has a Tidegate already"):
        made.tg.init_app(made.app)
    with pytest.raises(ConfigError, match=r"@tg\.limit must stand above"):
        made.tg.limit("1/hour")(type("Other", (), {}))


@each
def test_a_decorator_above_the_route_is_an_error_at_start(framework: Any) -> None:
    made = framework()
    view = made.view()
    made.add("/", view)
    made.tg.limit("1/hour")(view)
    with pytest.raises((ConfigError, AssertionError), match="stands above the route"):
        if framework is Quart:
            asyncio.run(start(made.app))
        else:
            made.call(made.app)


async def start(app: Any) -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        assert message["type"].endswith("complete"), message["message"]

    await app({"type": "lifespan", "asgi": {}, "state": {}}, receive, send)


def test_the_body_of_a_file_and_of_a_generator_ends_a_hold(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp.web sends these after the handler has returned."""
    pytest.importorskip("aiohttp")
    from aiohttp import web, web_fileresponse

    from tidegate.aiohttp_web import Tidegate

    # There is no socket.
    monkeypatch.setattr(web_fileresponse, "NOSENDFILE", True)
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    limiter = Limiter(policies={"p": "concurrency 1", "rate": "9/hour"})
    app = web.Application()
    tg = Tidegate(app, limiter=limiter, key=lambda request: "k")
    seen: list[int] = []

    async def parts() -> Any:
        seen.append(limiter.peek("p", "k").remaining)
        yield b"part"

    async def generated(request: Any) -> web.Response:
        return web.Response(body=parts())

    async def file(request: Any) -> web.FileResponse:
        return web.FileResponse(tmp_path / "file")

    options: Any = {"settle": lambda request, response: {"p": None, "rate": 4}}
    app.router.add_get("/generated", tg.limit(["p", "rate"], **options)(generated))
    app.router.add_get("/file", tg.limit("p")(file))
    assert [call_aiohttp(app, path="/generated").status, call_aiohttp(app, path="/file").status] == [200, 200]
    assert seen == [0] and limiter.peek("p", "k").remaining == 1
    assert limiter.peek("rate", "k").remaining == 5
