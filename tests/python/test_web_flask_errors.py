"""The way of a refusal to the client of a Flask application, and the needs of user() and claim()."""

from __future__ import annotations

import json
from typing import Any

import flask
import pytest
from flask import Blueprint, Flask, Response, g
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests

from tidegate import ConfigError, Limiter, RateLimited, StoreError
from tidegate.flask import Tidegate, claim, client_ip, decision, user
from web import call_wsgi, flask_app

LOST: dict[str, Any] = {"store": "redis://127.0.0.1:1/0", "on_store_error": "raise"}


@pytest.fixture
def app() -> Flask:
    return flask_app()


def refused(app: Flask) -> Any:
    """Returns the second response."""
    assert call_wsgi(app).status == 200
    return call_wsgi(app)


@pytest.mark.parametrize("handled", [429, RateLimited, TooManyRequests, HTTPException, Exception])
def test_an_error_handler_answers_a_refusal(app: Flask, handled: Any) -> None:
    Tidegate(app, default="1/minute")
    app.add_url_rule("/", "index", lambda: "ok")
    seen: list[Any] = []

    @app.errorhandler(handled)
    def slow_down(error: Any) -> Any:
        seen.append((error, decision()))
        return flask.jsonify(error=str(error.description), status=error.code), error.code, {"X-Own": "yes"}

    response = refused(app)
    assert (response.status, response["X-Own"], response["Content-Type"]) == (429, "yes", "application/json")
    error, known = seen[0]
    assert isinstance(error, RateLimited) and isinstance(error, TooManyRequests)
    assert error.decision == known and not known and known.policy == "1/minute"
    assert json.loads(response.body)["status"] == 429
    # No handler shows the key by accident.
    for text in (response.body.decode(), str(error), error.description):
        assert "1/minute" in text and "203.0.113" not in text
    assert response.items("RateLimit")["1/minute"]["r"] == 0 and response["X-RateLimit-Remaining"] == "0"
    assert 1 <= int(response["Retry-After"]) <= 63


def test_the_fields_of_a_handler_come_first(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    app.add_url_rule("/", "index", lambda: "ok")

    @app.errorhandler(429)
    def slow_down(error: Any) -> Any:
        return "slow down", 420, {"retry-after": "77", "X-RateLimit-Limit": "some"}

    response = refused(app)
    assert (response.status, response.body) == (420, b"slow down")
    assert (response["Retry-After"], response["X-RateLimit-Limit"]) == ("77", "some")
    assert response["X-RateLimit-Remaining"] == "0" and response.items("RateLimit")


def test_a_handler_may_change_the_response_of_the_error(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    app.add_url_rule("/", "index", lambda: "ok")

    @app.errorhandler(HTTPException)
    def as_json(error: Any) -> Any:
        response = error.get_response()
        response.data = json.dumps({"code": error.code, "name": error.name})
        response.content_type = "application/json"
        return response

    response = refused(app)
    assert response.status == 429 and json.loads(response.body) == {"code": 429, "name": "Too Many Requests"}
    assert response["Content-Length"] == str(len(response.body)) and response["Cache-Control"] == "no-store"


def test_without_a_handler_it_is_a_problem(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    app.add_url_rule("/", "index", lambda: "ok")
    after: list[int] = []

    @app.after_request
    def hook(response: Response) -> Response:
        after.append(response.status_code)
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    response = refused(app)
    assert (response.status, after) == (429, [200, 429])
    assert response["Content-Type"] == "application/problem+json"
    assert response["Access-Control-Allow-Origin"] == "*"
    assert json.loads(response.body)["violated-policies"] == ["1/minute"]


def test_an_application_that_handles_exceptions_itself_is_asked() -> None:
    class Handling(Flask):
        def handle_user_exception(self, e: Exception) -> Any:
            return ("handled by a class", 429) if isinstance(e, RateLimited) else super().handle_user_exception(e)

    replaced = Flask("replaced")
    handle = replaced.handle_user_exception
    replaced.handle_user_exception = (  # type: ignore[method-assign]
        lambda e: ("handled by a library", 429) if isinstance(e, RateLimited) else handle(e)
    )
    for app, body in ((Handling("handling"), b"handled by a class"), (replaced, b"handled by a library")):
        Tidegate(app, default="1/minute")
        app.add_url_rule("/", "index", lambda: "ok")
        assert refused(app).body == body


def test_on_denied_comes_before_a_handler(app: Flask) -> None:
    answers: list[Any] = [("denied", 418), None]
    Tidegate(app, default="1/minute", on_denied=lambda request, decision: answers.pop(0))
    app.add_url_rule("/", "index", lambda: "ok")
    app.register_error_handler(429, lambda error: ("handled", 429))
    assert refused(app).body == b"denied"
    assert call_wsgi(app).body == b"handled"


def test_a_blueprint_has_a_handler_of_its_own(app: Flask) -> None:
    Tidegate(app, default="1/minute")
    api = Blueprint("api", __name__)
    api.add_url_rule("/", "index", lambda: "ok")
    api.register_error_handler(429, lambda error: ("of the blueprint", 429))
    app.register_error_handler(429, lambda error: ("of the application", 429))
    app.register_blueprint(api)
    assert refused(app).body == b"of the blueprint"


def test_a_function_that_is_no_view_is_refused_in_the_same_way(app: Flask) -> None:
    tg = Tidegate(app)
    helper = tg.limit("1/minute")(lambda: "ok")

    @tg.limit("1/minute", on_denied=lambda request, decision: ("denied", 418))
    def denying() -> str:
        return "ok"

    app.add_url_rule("/", "index", lambda: helper())
    app.add_url_rule("/denying", "denying", lambda: denying())
    app.register_error_handler(429, lambda error: ("handled", 429))
    response = refused(app)
    assert response.body == b"handled" and response["Retry-After"]
    assert [call_wsgi(app, path="/denying").status for _ in range(2)] == [200, 418]


@pytest.mark.parametrize("handled", [503, StoreError, ServiceUnavailable, HTTPException])
def test_an_error_handler_answers_for_a_store_that_is_missing(app: Flask, handled: Any) -> None:
    Tidegate(app, default="1/minute", **LOST)
    app.add_url_rule("/", "index", lambda: "ok")

    @app.errorhandler(handled)
    def missing(error: Any) -> Any:
        assert isinstance(error, StoreError) and error.__cause__.code.startswith("store_")
        return f"{error.code}", 503

    response = call_wsgi(app)
    assert (response.status, response.body) == (503, b"503")


def test_an_unknown_path_stays_404_without_a_store(app: Flask) -> None:
    Tidegate(app, default="1/minute", **LOST)
    app.add_url_rule("/", "index", lambda: "ok")
    assert call_wsgi(app, path="/nowhere").status == 404
    assert call_wsgi(app, method="POST").status == 405
    assert call_wsgi(app).status == 503


def test_a_store_that_is_missing_after_the_response_does_not_replace_it(app: Flask) -> None:
    limiter = Limiter(policies={"p": "5/minute"})
    tg = Tidegate(app, limiter=limiter)

    def view() -> str:
        limiter.close()
        return "ok"

    app.add_url_rule("/", "index", tg.limit("p", refund_when=lambda response: False)(view))
    assert call_wsgi(app).body == b"ok"


def test_a_policy_that_closes_is_for_errorhandler_503(app: Flask) -> None:
    Tidegate(app, default="1/minute", store="redis://127.0.0.1:1/0", on_store_error="closed")
    app.add_url_rule("/", "index", lambda: "ok")
    assert call_wsgi(app).status == 503
    app.register_error_handler(503, lambda error: (f"{error.decision.policy} is closed", 503))
    assert call_wsgi(app).body == b"1/minute is closed"


def test_user_without_authentication_before_the_limit_is_an_error(app: Flask) -> None:
    tg = Tidegate(app)

    def authenticated(view: Any) -> Any:
        def inner(*args: Any, **kwargs: Any) -> Any:
            g.user, g.claims = "alice", {"sub": "alice"}
            return view(*args, **kwargs)

        return inner

    for name, key in {"user": user(), "claim": claim("sub")}.items():
        app.add_url_rule(f"/{name}/below", f"{name}_below", tg.limit("1/minute", key=key)(authenticated(lambda: "ok")))
        app.add_url_rule(f"/{name}/above", f"{name}_above", authenticated(tg.limit("1/minute", key=key)(lambda: "ok")))
        for path in (f"/{name}/below", f"/{name}/above"):
            with pytest.raises(ConfigError, match="before_request"):
                call_wsgi(app, path=path)


def test_user_of_a_visitor_is_the_address(app: Flask) -> None:
    limiter = Limiter(policies={"p": "1/minute", "q": "1/minute", "r": "1/minute"})
    tg = Tidegate(app, limiter=limiter)
    app.add_url_rule("/p", "p", tg.limit("p", key=user())(lambda: "ok"))
    app.add_url_rule("/q", "q", tg.limit("q", key=claim("sub"))(lambda: "ok"))
    app.add_url_rule("/r", "r", tg.limit("r", key=user(otherwise=client_ip()))(lambda: "ok"))
    assert call_wsgi(app, path="/r").status == 200, "a key for such requests was chosen"
    assert limiter.peek("r", "203.0.113.9").remaining == 0

    @app.before_request
    def authenticate() -> None:
        g.user = g.claims = None

    assert [call_wsgi(app, path=path).status for path in ("/p", "/q")] == [200, 200]
    assert limiter.peek("p", "anonymous:203.0.113.9").remaining == 0
    assert limiter.peek("q", "anonymous:203.0.113.9").remaining == 0


@pytest.mark.parametrize("available", [True, False])
def test_what_on_denied_answers_has_the_status_of_a_refusal_unless_it_gives_one(available: bool) -> None:
    app = flask.Flask("statuses")
    limiter = Limiter() if available else Limiter("redis://127.0.0.1:1/0", on_store_error="closed")
    tg = Tidegate(app, limiter=limiter)
    refused = 429 if available else 503
    answers: dict[str, tuple[Any, int]] = {
        "json": (lambda: flask.jsonify(slow="down"), refused),
        "dict": (lambda: {"slow": "down"}, refused),
        "text": (lambda: "slow down", refused),
        "headers": (lambda: ("slow down", {"X-Own": "1"}), refused),
        "redirect": (lambda: flask.redirect("/"), 302),
        "status": (lambda: ("slow down", 418), 418),
        "ok": (lambda: (flask.jsonify(), 200), 200),
        "line": (lambda: ("slow down", "418 I'm a Teapot"), 418),
    }
    for name, (answer, _) in answers.items():
        app.add_url_rule(f"/{name}", name, tg.limit("0/minute", on_denied=answer)(lambda: "served"))
    for name, (_, status) in answers.items():
        assert call_wsgi(app, path=f"/{name}").status == status, name
