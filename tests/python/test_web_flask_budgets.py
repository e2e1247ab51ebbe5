"""The budget of a request in a Flask application: that of its view, of the application, or of its method."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from flask import Blueprint, Flask
from flask.views import MethodView

from tidegate import ConfigError, Limiter
from tidegate.flask import Tidegate, decision
from tidegate.http import placed_key
from web import call_wsgi, flask_app

ADDRESS = "203.0.113.9"


@pytest.fixture
def app() -> Flask:
    return flask_app()


def add(app: Flask, *names: str) -> None:
    for name in names:
        app.add_url_rule(f"/{name}", name, lambda: "ok", methods=["GET", "POST"])


def statuses(app: Flask, *paths: str, method: str = "GET") -> list[int]:
    return [call_wsgi(app, path=path, method=method).status for path in paths]


def test_the_default_is_a_budget_for_each_view(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    add(app, "a", "b")
    assert statuses(app, "/a", "/a", "/b", "/b") == [200, 429, 200, 429]


def test_a_named_default_is_one_limit_as_every_name_is(app: Flask) -> None:
    Tidegate(app, policies={"shared": "2/minute"}, default="shared")
    add(app, "a", "b")
    assert statuses(app, "/a", "/b", "/a", "/b") == [200, 200, 429, 429]


def test_the_application_has_one_budget_for_all_views_beside_their_own(app: Flask) -> None:
    limiter = Limiter()
    tg = Tidegate(app, limiter=limiter, default="2/minute", application="4/minute")
    add(app, "a", "b")
    app.add_url_rule("/own", "own", tg.limit("1/minute")(lambda: "own"))
    app.add_url_rule("/free", "free", tg.exempt(lambda: "free"))
    assert statuses(app, "/a", "/a", "/a") == [200, 200, 429], "the default of the view"
    assert limiter.peek("4/minute", placed_key("*", ADDRESS)).remaining == 2, "all or nothing"
    assert statuses(app, "/own", "/own") == [200, 429], "its own limit replaces the default"
    assert statuses(app, "/b", "/b") == [200, 429], "the application's is used up"
    assert statuses(app, "/free", "/free") == [200, 200]
    assert limiter.peek("4/minute", placed_key("*", ADDRESS)).remaining == 0


def test_both_limits_are_asked_in_one_round_trip(app: Flask) -> None:
    seen: list[Any] = []
    tg = Tidegate(app, application="9/minute")
    app.add_url_rule("/", "index", tg.limit("5/minute")(lambda: seen.append(decision()) or "ok"))
    fields = call_wsgi(app)
    assert [one.policy for one in seen[0].decisions] == ["5/minute", "9/minute"]
    assert set(fields.items("RateLimit")) == {"5/minute", "9/minute"}


def test_an_unknown_path_and_a_wrong_method_charge_the_application_only(app: Flask) -> None:
    limiter = Limiter()
    Tidegate(app, limiter=limiter, default="1/minute", application="4/minute")
    app.add_url_rule("/get", "get", lambda: "get")
    assert statuses(app, "/nowhere", "/nowhere") == [404, 404]
    assert statuses(app, "/get", method="POST") == [405]
    assert limiter.peek("4/minute", placed_key("*", ADDRESS)).remaining == 1
    assert statuses(app, "/get", "/nowhere") == [200, 429]


def test_without_an_application_limit_an_unknown_path_is_not_limited(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    app.add_url_rule("/get", "get", lambda: "get")
    assert statuses(app, *["/nowhere"] * 3) == [404] * 3
    assert statuses(app, *["/get"] * 3, method="POST") == [405] * 3


def test_options_and_static_files_have_no_limits(app: Flask, tmp_path: Any) -> None:
    (tmp_path / "file.txt").write_text("static")
    app.static_folder = str(tmp_path)
    Tidegate(app, default="1/minute", application="2/minute")
    add(app, "a")
    assert statuses(app, *["/a"] * 5, method="OPTIONS") == [200] * 5
    assert statuses(app, *["/static/file.txt"] * 5) == [200] * 5
    app.add_url_rule("/own", "own", lambda: "own", methods=["OPTIONS"], provide_automatic_options=False)
    assert statuses(app, "/own", "/own", method="OPTIONS") == [200, 429], "a view of its own for OPTIONS is a view"


def test_head_counts_as_get(app: Flask) -> None:
    tg = Tidegate(app)
    app.add_url_rule("/get", "get", tg.limit("1/minute", methods=["GET"])(lambda: "get"), methods=["GET", "POST"])
    assert statuses(app, "/get", method="HEAD") == [200]
    assert statuses(app, "/get") == [429]
    assert statuses(app, "/get", "/get", method="POST") == [200, 200]


def test_per_method_is_a_budget_for_each_method_of_a_view(app: Flask) -> None:
    limiter = Limiter()
    Tidegate(app, limiter=limiter, default="1/minute", application="5/minute", per_method=True)
    add(app, "a", "b")
    assert statuses(app, "/a", "/a", "/b") == [200, 429, 200]
    assert statuses(app, "/a", "/a", method="POST") == [200, 429]
    assert statuses(app, "/a", method="HEAD") == [429], "it shares the budget of GET"
    assert limiter.peek("1/minute", placed_key("a", ADDRESS, "POST")).remaining == 0
    assert limiter.peek("5/minute", placed_key("*", ADDRESS)).remaining == 2, "one budget whatever the method is"


def test_a_global_skip_applies_beside_that_of_a_limit(app: Flask) -> None:
    asked: list[str] = []

    def everywhere(request: Any) -> bool:
        asked.append("everywhere")
        return request.headers.get("X-Internal") == "yes"

    tg = Tidegate(app, default="1/minute", application="1/hour", skip=everywhere)
    view = tg.limit("1/minute", skip=lambda request: request.headers.get("X-Own") == "yes")(lambda: "own")
    app.add_url_rule("/own", "own", view)

    def get(name: str) -> int:
        return call_wsgi(app, path="/own", headers={name: "yes"}).status

    assert [get("X-Internal") for _ in range(3)] == [200] * 3
    assert asked == ["everywhere"] * 3, "once for a request"
    assert [get("X-Own") for _ in range(2)] == [200, 429], "the application's has no skip of its own"


def test_a_limit_that_is_not_enabled_leaves_the_default(app: Flask) -> None:
    tg = Tidegate(app, default="2/minute")
    app.add_url_rule("/", "index", tg.limit("1/minute", enabled=False)(lambda: "ok"))
    assert statuses(app, "/", "/", "/") == [200, 200, 429]


def test_the_configuration_disables_the_layer(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    tg = Tidegate(app, default="1/minute", application="1/hour", store="redis://127.0.0.1:1/0", on_store_error="raise")
    app.add_url_rule("/own", "own", tg.limit("1/minute")(lambda: str(decision())))
    add(app, "a")
    for off in (False, "false", "0", "off", 0):
        app.config["TIDEGATE_ENABLED"] = off
        for path in ("/own", "/a"):
            seen = call_wsgi(app, path=path)
            assert seen.status == 200 and "RateLimit" not in seen
        assert statuses(app, "/nowhere") == [404]
    # The configuration of the application takes precedence over the environment and the option.
    other = Flask("other")
    other.config["TIDEGATE_ENABLED"] = True
    monkeypatch.setenv("TIDEGATE_ENABLED", "false")
    Tidegate(other, default="1/minute", enabled=False)
    add(other, "a")
    assert statuses(other, "/a", "/a") == [200, 429]
    for wrong in ("nope", 2, None.__class__):
        one = Flask("wrong")
        one.config["TIDEGATE_ENABLED"] = wrong
        with pytest.raises(ConfigError, match="TIDEGATE_ENABLED"):
            Tidegate(one)


def test_the_option_is_nearer_than_the_environment(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_ENABLED", "0")
    Tidegate(app, default="1/minute", enabled=True)
    add(app, "a")
    assert statuses(app, "/a", "/a") == [200, 429]
    with pytest.raises(ConfigError, match="enabled"):
        Tidegate(Flask("other"), enabled="false")  # type: ignore[arg-type]


PLACES = """
import sys
sys.path.insert(0, {tests!r})
from flask import Blueprint, Flask
from flask.views import MethodView
from tidegate.flask import Tidegate, decision
from web import call_wsgi, flask_app

app = Flask("app")
tg = Tidegate(app, default="9/minute", application="99/hour")
def new(): return lambda: view()
def view(): return "\\n".join(one.key for one in decision().decisions)
class Methods(MethodView):
    @tg.limit("5/minute")
    def post(self): return view()
api = tg.limit("7/minute")(Blueprint("api", "api"))
rules = [
    lambda: app.add_url_rule("/own", "own", tg.limit("5/minute")(new())),
    lambda: app.add_url_rule("/other", "other", tg.limit("5/minute")(new())),
    lambda: app.add_url_rule("/plain", "plain", new()),
    lambda: app.add_url_rule("/methods", view_func=Methods.as_view("methods")),
    lambda: (api.add_url_rule("/api", "view", tg.limit("5/minute")(new())), app.register_blueprint(api)),
]
for rule in rules[::{step}]: rule()
for path in ["/own", "/other", "/plain", "/methods", "/api"][::{step}]:
    seen = call_wsgi(app, path=path, method="POST" if path == "/methods" else "GET")
    assert seen.status == 200
    print(path, *seen.body.decode().split("\\n"), sep=" | ")
"""


def test_the_place_of_a_notation_is_the_same_in_every_process_and_after_a_deploy() -> None:
    def run(step: int) -> list[str]:
        tests = __file__.rpartition("/")[0]
        code = PLACES.format(tests=tests, step=step)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.splitlines())

    first = run(1)
    assert first == run(-1), "whatever the order is"
    assert first == [
        f"/api | {placed_key('api.view', ADDRESS)} | {placed_key('api.*', ADDRESS)} | {placed_key('*', ADDRESS)}",
        f"/methods | {placed_key('methods.post', ADDRESS)} | {placed_key('*', ADDRESS)}",
        f"/other | {placed_key('other', ADDRESS)} | {placed_key('*', ADDRESS)}",
        f"/own | {placed_key('own', ADDRESS)} | {placed_key('*', ADDRESS)}",
        f"/plain | {placed_key('plain', ADDRESS)} | {placed_key('*', ADDRESS)}",
    ]


def test_views_of_one_name_have_budgets_of_their_own(app: Flask) -> None:
    tg = Tidegate(app)

    def made() -> Any:
        @tg.limit("1/minute")
        def view(*self: Any) -> str:
            return "ok"

        return view

    class Methods(MethodView):
        get = made()
        post = made()

    for name in ("a", "b"):
        app.add_url_rule(f"/{name}", name, made())
        api = Blueprint(name, __name__, url_prefix=f"/in/{name}")
        api.add_url_rule("/view", "view", made())
        app.register_blueprint(tg.limit("5/hour")(api))
        app.add_url_rule(f"/methods/{name}", view_func=Methods.as_view(f"methods_{name}"))
    for path in ("/a", "/b", "/in/a/view", "/in/b/view", "/methods/a", "/methods/b"):
        assert statuses(app, path, path) == [200, 429], path
    assert statuses(app, "/methods/a", "/methods/a", method="POST") == [200, 429]


def test_a_placed_key_clears_what_a_place_has_used(app: Flask) -> None:
    limiter = Limiter()
    tg = Tidegate(app, limiter=limiter)
    app.add_url_rule("/", "login", tg.limit("1/minute")(lambda: "ok"))
    assert statuses(app, "/", "/") == [200, 429]
    assert limiter.peek("1/minute", placed_key("login", ADDRESS)).remaining == 0
    limiter.clear("1/minute", placed_key("login", ADDRESS))
    assert statuses(app, "/", "/") == [200, 429]
