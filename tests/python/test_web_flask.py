"""The particulars of Flask: blueprints, class views, factories, defaults, and wrong use."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Flask, Response, g
from flask.views import MethodView, View

from tidegate import ConfigError, Limiter
from tidegate.flask import Tidegate, claim, fixed, user
from web import SeenResponse, call_wsgi


def statuses(app: Flask, *paths: str, method: str = "GET") -> list[int]:
    return [call_wsgi(app, path=path, method=method).status for path in paths]


def test_views_with_the_same_notation_have_one_limit_each_and_a_name_is_one_limit() -> None:
    app = Flask("app")
    tg = Tidegate(app, policies={"shared": "2/minute"})
    for name in ("a", "b"):
        app.add_url_rule(f"/{name}", name, tg.limit("1/minute")(named(name)))
        app.add_url_rule(f"/shared/{name}", f"shared_{name}", tg.limit("shared")(named(name)))
    assert statuses(app, "/a", "/a", "/b", "/b") == [200, 429, 200, 429]
    assert statuses(app, "/shared/a", "/shared/b", "/shared/a") == [200, 200, 429]


def named(name: str) -> Any:
    def view() -> str:
        return name

    view.__name__ = view.__qualname__ = name
    return view


def test_a_default_is_for_views_without_a_limit() -> None:
    app = Flask("app")
    tg = Tidegate(app, default="2/minute")
    app.add_url_rule("/own", "own", tg.limit("1/minute")(named("own")))
    app.add_url_rule("/plain", "plain", named("plain"))
    app.add_url_rule("/free", "free", tg.exempt(named("free")))
    assert statuses(app, "/own", "/own", "/plain", "/plain", "/plain") == [200, 429, 200, 200, 429]
    assert statuses(app, *["/free"] * 5) == [200] * 5
    assert statuses(app, "/nowhere") == [404]
    # The automatic OPTIONS responses of Flask are not limited.
    assert statuses(app, *["/plain"] * 3, method="OPTIONS") == [200] * 3


def test_an_application_factory() -> None:
    tg = Tidegate(default="1/minute")
    app = Flask("app")
    app.add_url_rule("/", "index", named("index"))
    tg.init_app(app)
    assert statuses(app, "/", "/") == [200, 429]
    other = Flask("other")
    tg.init_app(other)
    other.add_url_rule("/", "index", named("index"))
    assert statuses(other, "/") == [429], "one Tidegate is one limiter"
    with pytest.raises(ConfigError, match="already"):
        tg.init_app(app)


def test_a_blueprint_has_one_limit_for_all_its_views() -> None:
    app = Flask("app")
    tg = Tidegate(app, default="10/minute")
    api = tg.limit("2/minute")(Blueprint("api", __name__, url_prefix="/api"))
    api.add_url_rule("/a", "a", named("a"))
    api.add_url_rule("/b", "b", tg.limit("1/minute")(named("b")))
    inner = Blueprint("inner", __name__, url_prefix="/inner")
    inner.add_url_rule("/c", "c", named("c"))
    api.register_blueprint(inner)
    app.register_blueprint(api)
    free = tg.exempt(Blueprint("free", __name__, url_prefix="/free"))
    free.add_url_rule("/d", "d", named("d"))
    app.register_blueprint(free)
    assert statuses(app, "/api/a", "/api/b", "/api/a", "/api/inner/c") == [200, 200, 429, 429]
    seen = call_wsgi(app, path="/free/d")
    assert seen.status == 200 and "RateLimit" not in seen


def test_class_views() -> None:
    app = Flask("app")
    tg = Tidegate(app)

    class Listed(View):
        decorators = [tg.limit("1/minute")]  # noqa: RUF012

        def dispatch_request(self) -> str:
            return "listed"

    @tg.limit("2/minute")
    class Whole(MethodView):
        def get(self) -> str:
            return "get"

        @tg.limit("1/minute")
        def post(self) -> str:
            return "post"

    app.add_url_rule("/listed", view_func=Listed.as_view("listed"))
    app.add_url_rule("/whole", view_func=Whole.as_view("whole"))
    assert statuses(app, "/listed", "/listed") == [200, 429]
    assert statuses(app, "/whole", method="POST") == [200]
    assert statuses(app, "/whole", method="POST") == [429], "the method's own limit"
    assert statuses(app, "/whole", "/whole") == [200, 429], "the limit of the class, of which the POST used one"


def test_several_decorators_are_checked_in_one_step() -> None:
    app = Flask("app")
    limiter = Limiter(policies={"tight": "1/minute", "wide": "10/minute"})
    tg = Tidegate(app, limiter=limiter)
    app.add_url_rule("/", "index", tg.limit("wide")(tg.limit("tight")(named("index"))))
    assert statuses(app, "/", "/", "/") == [200, 429, 429]
    assert limiter.peek("wide", "203.0.113.9").remaining == 9


def test_headers_are_on_errors_too() -> None:
    app = Flask("app")
    tg = Tidegate(app)

    @app.get("/")
    @tg.limit("5/minute")
    def fails() -> str:
        raise ZeroDivisionError

    seen = call_wsgi(app)
    assert seen.status == 500 and seen.items("RateLimit")


def test_the_user_is_authenticated_before_the_check() -> None:
    app = Flask("app")
    limiter = Limiter(policies={"p": "1/minute", "q": "1/minute"})
    tg = Tidegate(app, limiter=limiter)
    app.add_url_rule("/", "index", tg.limit(["p"], key=user())(named("index")))
    app.add_url_rule("/claim", "claim", tg.limit("q", key=claim("sub"))(named("claim")))

    # Applications register this function after the Tidegate.
    @app.before_request
    def authenticate() -> None:
        g.user, g.claims = "alice", {"sub": "bob"}

    assert statuses(app, "/", "/claim") == [200, 200]
    assert limiter.peek("p", "alice").remaining == 0
    assert limiter.peek("q", "bob").remaining == 0


def test_an_aborted_stream_gives_back_its_hold() -> None:
    app = Flask("app")
    limiter = Limiter(policies={"p": "concurrency 1"})
    tg = Tidegate(app, limiter=limiter)

    @app.get("/")
    @tg.limit("p", key=fixed("k"))
    def stream() -> Response:
        return Response(iter([b"a", b"b"]))

    with app.test_client() as client:
        response = client.get("/", buffered=False)
        assert limiter.peek("p", "k").remaining == 0
        response.close()
    assert limiter.peek("p", "k").remaining == 1


def test_a_decorator_in_the_wrong_order_raises() -> None:
    app = Flask("app")
    tg = Tidegate(app)
    for decorator in (tg.limit("1/minute"), tg.exempt):
        with pytest.raises(ConfigError, match="below @app"):
            decorator(app.route(f"/{id(decorator)}", endpoint=str(id(decorator)))(named("view")))


def test_a_tidegate_that_was_never_attached_raises() -> None:
    app = Flask("app")
    app.testing = True
    tg = Tidegate()

    @app.get("/")
    @tg.limit("1/minute")
    def index() -> str:
        return "index"

    @app.get("/later")
    @tg.limit("1/minute")
    async def later() -> str:
        return "later"

    @tg.limit("1/minute")
    class Whole(MethodView):
        def get(self) -> str:
            return "get"

    app.add_url_rule("/whole", view_func=Whole.as_view("whole"))
    api = tg.limit("1/minute")(Blueprint("api", __name__))
    api.add_url_rule("/api", "a", named("a"))
    app.register_blueprint(api)
    for path in ("/", "/later", "/whole", "/api"):
        with pytest.raises(ConfigError, match="not attached"):
            call_wsgi(app, path=path)
    assert index() == "index", "without a request it is a plain function"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tg: tg.limit(named("view")),
        lambda tg: tg.limit("1/minute")(7),
        lambda tg: tg.limit("1/minute", nonsense=True),
        lambda tg: Tidegate("app"),
        lambda tg: Tidegate(limiter=tg.limiter, store="memory://"),
    ],
)
def test_wrong_use_raises(wrong: Any) -> None:
    with pytest.raises((ConfigError, TypeError)):
        wrong(Tidegate(Flask("app")))


def test_a_refusal_is_not_cached() -> None:
    app = Flask("app")
    tg = Tidegate(app, default="1/minute")
    assert tg.limiter
    app.add_url_rule("/", "index", named("index"))
    call_wsgi(app)
    seen: SeenResponse = call_wsgi(app)
    assert (seen.status, seen["Cache-Control"]) == (429, "no-store")
    assert b"203.0.113" not in seen.body, "no key in a body"


def test_a_middleware_that_copies_the_environ_loses_nothing() -> None:
    app = Flask("app")
    inner = app.wsgi_app
    app.wsgi_app = lambda environ, start: inner(dict(environ), start)  # type: ignore[method-assign]
    tg = Tidegate(app)
    app.add_url_rule("/", "index", tg.limit("1/minute")(named("index")))
    assert [call_wsgi(app)["X-RateLimit-Remaining"] for _ in range(2)] == ["0", "0"]


def test_a_view_is_checked_by_the_application_that_serves_it() -> None:
    app, other = Flask("app"), Flask("other")
    tg = Tidegate(app)
    view = tg.limit("5/minute")(named("view"))
    for one in (app, other):
        one.testing = True
        one.add_url_rule("/", "view", view)
    assert statuses(app, "/") == [200]
    with pytest.raises(ConfigError, match="not attached"):
        call_wsgi(other)
    assert statuses(app, "/") == [200]


def test_response_hooks_are_registered_once() -> None:
    app = Flask("app")
    limiter = Limiter(policies={"p": "5/minute"})
    tg = Tidegate(app, limiter=limiter)
    for name in ("a", "b"):
        view = tg.limit("p", key=fixed("k"), refund_when=lambda response: True)(named(name))
        app.add_url_rule(f"/{name}", name, view)
    assert statuses(app, "/a", "/b", "/a", "/b") == [200] * 4
    assert limiter.peek("p", "k").remaining == 5
    assert len(app.after_request_funcs[None]) == len(app.teardown_request_funcs[None]) == 1
