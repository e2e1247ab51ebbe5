"""The places of a limit in a Flask application: under any decorator, on any callable. It limits, or is an error."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from flask import Blueprint, Flask
from flask.views import MethodView, View

from tidegate import ConfigError, Limiter
from tidegate.flask import Tidegate, decision
from tidegate.http import placed_key
from web import call_wsgi, flask_app

ADDRESS = "203.0.113.9"


@pytest.fixture
def app() -> Flask:
    return flask_app()


def statuses(app: Flask, *paths: str, method: str = "GET") -> list[int]:
    return [call_wsgi(app, path=path, method=method).status for path in paths]


def careless(view: Any) -> Any:
    """A decorator without functools.wraps."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return inner


def without_arguments(view: Any) -> Any:
    """Another one, with a wrapper that passes no arguments on."""

    def inner() -> Any:
        return view()

    return inner


class Calling:
    """A decorator that is a class."""

    def __init__(self, view: Any) -> None:
        self.view = view

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.view(*args, **kwargs)


def text() -> str:
    return "text"


@pytest.mark.parametrize("outer", [careless, without_arguments, Calling, functools.partial])
@pytest.mark.parametrize("default", [None, "100/minute"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_limit_below_any_decorator(app: Flask, outer: Any, default: str | None, asynchronous: bool) -> None:
    tg = Tidegate(app, default=default)

    async def later() -> str:
        return "later"

    view = outer(tg.limit("2/minute")(later if asynchronous else text))
    # The wrapper of a coroutine function is a plain function, so Flask would not await it.
    app.add_url_rule("/", "index", (lambda: app.async_to_sync(_call)(view)) if asynchronous else view)
    assert statuses(app, "/", "/", "/") == [200, 200, 429]
    seen = call_wsgi(app)
    assert seen["Retry-After"] and "2/minute" in seen.items("RateLimit")


async def _call(view: Any) -> Any:
    return await view()


def test_a_limit_below_a_careless_decorator_replaces_the_default(app: Flask) -> None:
    tg = Tidegate(app, default="1/minute")
    for name, outer in {"careless": careless, "calling": Calling}.items():
        app.add_url_rule(f"/{name}", name, outer(tg.limit("3/minute")(text)))
        assert statuses(app, *[f"/{name}"] * 4) == [200, 200, 200, 429]


def test_limits_above_and_below_a_careless_decorator(app: Flask) -> None:
    limiter = Limiter(policies={"outer": "9/minute", "inner": "2/minute"})
    tg = Tidegate(app, limiter=limiter)
    app.add_url_rule("/", "index", tg.limit("outer")(careless(tg.limit("inner")(text))))
    assert statuses(app, "/", "/", "/") == [200, 200, 429]
    assert limiter.peek("outer", ADDRESS).remaining == 7, "in one step"


def test_a_callable_object(app: Flask) -> None:
    class Slotted:
        __slots__ = ()

        def __call__(self) -> str:
            return "slotted"

    tg = Tidegate(app)
    for name, made in {"object": Calling(text), "slotted": Slotted(), "partial": functools.partial(text)}.items():
        app.add_url_rule(f"/{name}", name, tg.limit("1/minute")(made))
        assert statuses(app, f"/{name}", f"/{name}") == [200, 429]


def test_a_helper_is_limited_where_it_is_called(app: Flask) -> None:
    limiter = Limiter()
    tg = Tidegate(app, limiter=limiter)

    @tg.limit("2/minute")
    def helper() -> str:
        return "help"

    app.add_url_rule("/one", "one", lambda: helper())
    app.add_url_rule("/two", "two", lambda: helper() + helper())
    app.add_url_rule("/none", "none", lambda: "none")
    assert statuses(app, "/none", "/one", "/none", "/one", "/two", "/none") == [200, 200, 200, 200, 429, 200]
    name = f"{__name__}.{helper.__qualname__}"
    assert limiter.peek("2/minute", placed_key(name, ADDRESS)).remaining == 0
    limiter.clear("2/minute", placed_key(name, ADDRESS))
    assert statuses(app, "/two", "/one") == [200, 429]
    assert helper() == "help", "without a request it is a plain function"


def test_helpers_of_one_name_would_share_a_notation(app: Flask) -> None:
    tg = Tidegate(app)

    def made(text: str) -> Any:
        return tg.limit("1/minute")(lambda: text)

    def same() -> str:
        return "same"

    one, again = made("one"), made("again")
    same.__qualname__ = one.__qualname__
    same = tg.limit("1/minute")(same)
    app.add_url_rule("/one", "one", lambda: one())
    app.add_url_rule("/again", "again", lambda: again())
    assert statuses(app, "/one", "/again") == [200, 429], "one function, made twice, is one place"
    app.add_url_rule("/same", "same", lambda: same())
    with pytest.raises(ConfigError, match=r"lambda.*give each policy a name"):
        call_wsgi(app, path="/same")


def test_a_helper_with_a_hold_and_a_refund(app: Flask) -> None:
    limiter = Limiter(policies={"c": "concurrency 1", "p": "1/minute"})
    tg = Tidegate(app, limiter=limiter, default="9/minute")

    @tg.limit("c")
    @tg.limit("p", refund_when=lambda response: True)
    def helper() -> str:
        assert limiter.peek("c", ADDRESS).remaining == 0
        return "help"

    app.add_url_rule("/", "index", lambda: helper())
    assert statuses(app, "/", "/", "/") == [200, 200, 200]
    assert limiter.peek("c", ADDRESS).remaining == limiter.peek("p", ADDRESS).remaining == 1
    assert set(call_wsgi(app).items("RateLimit")) == {"9/minute", "c", "p"}


def test_a_view_that_calls_another_view(app: Flask) -> None:
    tg = Tidegate(app)
    inner = tg.limit("1/minute")(text)
    app.add_url_rule("/inner", "inner", inner)
    app.add_url_rule("/outer", "outer", careless(inner))
    assert statuses(app, "/inner", "/inner", "/outer", "/outer") == [200, 429, 200, 429]


def test_one_function_with_and_without_a_limit(app: Flask) -> None:
    tg = Tidegate(app)
    app.add_url_rule("/limited", "limited", tg.limit("1/minute")(text))
    app.add_url_rule("/wide", "wide", tg.limit("3/minute")(text))
    app.add_url_rule("/free", "free", text)
    assert statuses(app, "/limited", "/limited", *["/wide"] * 4) == [200, 429, 200, 200, 200, 429]
    assert statuses(app, *["/free"] * 5) == [200] * 5


def test_class_views(app: Flask) -> None:
    tg = Tidegate(app, default="100/minute")

    class Listed(View):
        decorators = [careless, tg.limit("1/minute"), careless]  # noqa: RUF012

        def dispatch_request(self) -> str:
            return "listed"

    class Methods(MethodView):
        @careless
        @tg.limit("1/minute")
        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    @tg.limit("1/minute")
    class Whole(View):
        def dispatch_request(self) -> str:
            return "whole"

    class Part(Whole):
        pass

    @careless
    @tg.limit("1/minute")
    class Hidden(View):
        def dispatch_request(self) -> str:
            return "hidden"

    app.add_url_rule("/listed", view_func=Listed.as_view("listed"))
    app.add_url_rule("/methods", view_func=Methods.as_view("methods"))
    app.add_url_rule("/whole", "whole", careless(Whole.as_view("whole")))
    app.add_url_rule("/part", view_func=Part.as_view("part"))
    for path in ("/listed", "/methods", "/whole", "/part"):
        assert statuses(app, path, path) == [200, 429], path
    assert statuses(app, *["/methods"] * 3, method="POST") == [200] * 3
    assert statuses(app, "/methods", method="HEAD") == [429], "HEAD is served by the method for GET"


def test_a_limit_on_what_no_request_runs_is_an_error(app: Flask) -> None:
    tg = Tidegate(app)

    class Plain:
        def method(self) -> str:
            return "plain"

    for wrong, says in [
        (Plain, "flask.views.View"),
        (staticmethod(text), "below @staticmethod"),
        (classmethod(text), "below @classmethod"),
        (7, "must get a view"),
        (Flask("other"), "application="),
    ]:
        for decorator in (tg.limit("1/minute"), tg.exempt):
            with pytest.raises(ConfigError, match=says):
                decorator(wrong)


def test_a_limit_without_parentheses_is_told_so(app: Flask) -> None:
    tg = Tidegate(app)
    with pytest.raises(ConfigError, match="has no policy"):
        app.get("/")(tg.limit(text))

    def with_argument(name: str) -> str:
        return name

    with pytest.raises(ConfigError, match=r"with_argument.*has no policy"):
        app.get("/<name>")(tg.limit(with_argument))

    class Whole(MethodView):
        pass

    with pytest.raises(ConfigError, match=r"Whole.*has no policy"):
        tg.limit(Whole)  # type: ignore[arg-type]
    app.add_url_rule("/rule/<name>", "rule", tg.limit(with_argument))
    with pytest.raises(ConfigError, match=r"with_argument.*has no policy"):
        call_wsgi(app, path="/rule/x")


def test_a_limit_above_the_route_is_an_error_or_limits(app: Flask) -> None:
    tg = Tidegate()
    tg.limit("1/minute")(app.get("/above")(text))
    tg.init_app(app)
    with pytest.raises(ConfigError, match="above the route"):
        call_wsgi(app, path="/above")


def test_a_blueprint_that_is_registered_already_is_an_error(app: Flask) -> None:
    tg = Tidegate(app)
    blueprint = Blueprint("api", __name__)
    blueprint.add_url_rule("/", "index", text)
    app.register_blueprint(blueprint)
    with pytest.raises((ConfigError, AssertionError), match="registered"):
        tg.limit("1/minute")(blueprint)


def test_the_decision_in_a_view(app: Flask) -> None:
    tg = Tidegate(app)
    seen: list[Any] = []

    def view() -> str:
        seen.append(decision())
        return "seen"

    app.add_url_rule("/own", "own", tg.limit("5/minute")(view))
    app.add_url_rule("/exempt", "exempt", tg.exempt(view))
    app.add_url_rule("/careless", "careless", without_arguments(tg.limit("7/minute")(view)))
    app.add_url_rule("/plain", "plain", view)
    assert statuses(app, "/own", "/exempt", "/careless", "/plain") == [200] * 4
    assert [seen[1], seen[3]] == [None, None]
    assert (seen[0].policy, seen[0].remaining, seen[0].key) == ("5/minute", 4, placed_key("own", ADDRESS))
    assert (seen[2].policy, seen[2].remaining) == ("7/minute", 6)
    assert decision() is None
