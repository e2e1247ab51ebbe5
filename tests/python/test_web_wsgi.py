"""The particulars of WSGI applications."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate import Limiter, StoreError
from tidegate.wsgi import TidegateMiddleware
from web import call_wsgi

GONE = {"store": "redis://127.0.0.1:1/0"}


def application(seen: list[Any]) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        seen.append(environ.get("tidegate.decision"))
        start_response("200 OK", [])
        return [b"ok"]

    return app


@pytest.mark.parametrize("policy", ["p", ["p"], lambda environ: "p", ["p", "held"]])
def test_the_application_finds_the_decision(policy: Any) -> None:
    seen: list[Any] = []
    app = TidegateMiddleware(
        application(seen), policy, limiter=Limiter(policies={"p": "5/minute", "held": "concurrency 9"})
    )
    assert [call_wsgi(app).status for _ in range(6)] == [200] * 5 + [429]
    assert [(one.policy, one.limit, one.remaining) for one in seen] == [("p", 5, left) for left in (4, 3, 2, 1, 0)]


def test_nothing_limits_a_request_without_a_policy() -> None:
    seen: list[Any] = []
    app = TidegateMiddleware(application(seen), lambda environ: None)
    assert "RateLimit" not in call_wsgi(app)
    assert seen == [None]


@pytest.mark.parametrize("more", [{}, {"cost": lambda environ: 1}])
def test_a_missing_store_is_503(more: Any) -> None:
    seen: list[Any] = []
    app = TidegateMiddleware(application(seen), "1/minute", on_store_error="raise", **GONE, **more)
    answer = call_wsgi(app)
    assert (answer.status, answer["Content-Type"]) == (503, "application/problem+json")
    assert json.loads(answer.body)["status"] == 503 and answer["Retry-After"] == "1"
    assert call_wsgi(app, method="HEAD").body == b""
    assert seen == []


def test_an_error_of_the_application_is_its_own() -> None:
    def app(environ: Any, start_response: Any) -> Any:
        raise StoreError("of the application")

    for policy in ("1/minute", ["9/minute", "concurrency 1"]):
        with pytest.raises(StoreError, match="of the application"):
            call_wsgi(TidegateMiddleware(app, policy))


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    off = TidegateMiddleware(application(seen), "1/minute", enabled=False, on_store_error="raise", **GONE)
    assert [call_wsgi(off).status for _ in range(3)] == [200] * 3
    monkeypatch.setenv("TIDEGATE_ENABLED", "0")
    assert [call_wsgi(TidegateMiddleware(application(seen), "1/minute")).status for _ in range(2)] == [200] * 2
    on = TidegateMiddleware(application(seen), "1/minute", enabled=True)
    assert [call_wsgi(on).status for _ in range(2)] == [200, 429]
