"""Spans of the web layers, for a limiter that is traced and for the limiter that `traced` returns."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask

from spans import KEY, Spans, events
from tidegate import AsyncLimiter, Limiter, RateLimited, asgi, wsgi
from tidegate.fastapi import Tidegate as FastApiTidegate
from tidegate.flask import Tidegate as FlaskTidegate
from tidegate.http import fixed
from tidegate.opentelemetry import meter_limiter, traced
from web import acall, call_asgi, call_wsgi, plain_endpoint
from web_django import django_settings

POLICIES = {"login": "fixed-window 2/minute", "day": "fixed-window 9/day", "exports": "concurrency 1"}
DENIED = ("tidegate.denied", {"tidegate.policy": "login", "tidegate.limit": "fixed-window 2/60s"})
# Makes a request and returns its status.
Request = Callable[[], int]


def on_flask(limiter: Any, policy: Any) -> Request:
    app = Flask("app")
    tg = FlaskTidegate(app, limiter=limiter)
    app.add_url_rule("/", "index", tg.limit(policy, key=fixed(KEY))(lambda: "ok"))
    return lambda: call_wsgi(app).status


def on_wsgi(limiter: Any, policy: Any) -> Request:
    def app(_: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"ok"]

    limited = wsgi.TidegateMiddleware(app, policy, limiter=limiter, key=fixed(KEY))
    return lambda: call_wsgi(limited).status


def on_fastapi(limiter: Any, policy: Any) -> Request:
    app = FastAPI()
    tg = FastApiTidegate(app, limiter=limiter)
    app.get("/")(tg.limit(policy, key=fixed(KEY))(plain_endpoint()))
    return lambda: call_asgi(app).status


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def on_asgi(limiter: Any, policy: Any) -> Request:
    limited = asgi.TidegateMiddleware(answer, policy, limiter=limiter, key=fixed(KEY))
    return lambda: call_asgi(limited).status


FRAMEWORKS = [on_flask, on_wsgi, on_fastapi, on_asgi]
each_framework = pytest.mark.parametrize("serve", FRAMEWORKS)


@pytest.fixture(params=["given", "traced", "traced later"])
def tracing(request: pytest.FixtureRequest) -> Callable[..., Request]:
    """Serves a limiter that is traced before or after the web layer takes it, or the limiter that `traced` returns."""

    def start(serve: Any, limiter: Any, policy: Any, spans: Spans) -> Request:
        if request.param == "traced later":
            made: Request = serve(limiter, policy)
            traced(limiter, tracer_provider=spans.provider)
            return made
        with_spans = traced(limiter, tracer_provider=spans.provider)
        kept: Request = serve(with_spans if request.param == "traced" else limiter, policy)
        return kept

    return start


@each_framework
@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_denied_request_is_one_event_of_the_span_of_the_request(serve: Any, kind: Any, tracing: Any) -> None:
    spans = Spans()
    get = tracing(serve, kind(policies=POLICIES), "login", spans)
    with spans.tracer.start_as_current_span("request"):
        assert [get() for _ in range(4)] == [200, 200, 429, 429]
    (request,) = spans.taken()
    assert events(request) == [DENIED] * 2


@each_framework
def test_a_check_in_a_store_is_one_span_below_that_of_the_request(
    serve: Any, tracing: Any, redis_url: str, prefix: str
) -> None:
    spans = Spans()
    limiter = Limiter(redis_url, prefix=prefix, policies=POLICIES, timeout=5.0)
    get = tracing(serve, limiter, "login", spans)
    with spans.tracer.start_as_current_span("request"):
        assert [get() for _ in range(4)] == [200, 200, 429, 429]
    # The fourth request was denied in process.
    *calls, request = spans.taken()
    assert [span.name for span in calls] == ["tidegate.check"] * 3
    assert [dict(span.attributes or {}) for span in calls] == [
        {
            "tidegate.policy": "login",
            "tidegate.outcome": outcome,
            "tidegate.source": "store",
            "tidegate.store": next(iter(limiter.stats()["breaker"])),
        }
        for outcome in ("allowed", "allowed", "denied")
    ]
    assert all(span.parent is not None and span.parent.span_id == request.context.span_id for span in calls)
    assert events(request) == [DENIED] * 2


@each_framework
def test_several_policies_and_holds(serve: Any, redis_url: str, prefix: str) -> None:
    spans = Spans()
    limiter = traced(Limiter(redis_url, prefix=prefix, policies=POLICIES, timeout=5.0), tracer_provider=spans.provider)
    get = serve(limiter, ["exports", "login", "day"])
    with spans.tracer.start_as_current_span("request"):
        assert [get() for _ in range(3)] == [200, 200, 429]
    *calls, request = spans.taken()
    assert [span.name for span in calls] == ["tidegate.hold", "tidegate.check_all"] * 3
    assert [(span.attributes or {})["tidegate.outcome"] for span in calls] == ["allowed"] * 5 + ["denied"]
    assert events(request) == [DENIED]


@each_framework
def test_a_hold_that_is_denied_is_one_event(serve: Any) -> None:
    spans = Spans()
    limiter = traced(Limiter(policies=POLICIES), tracer_provider=spans.provider)
    get = serve(limiter, "exports")
    with limiter.hold("exports", KEY), spans.tracer.start_as_current_span("request"):
        assert get() == 429
    (request,) = spans.taken()
    assert events(request) == [("tidegate.denied", {"tidegate.policy": "exports", "tidegate.limit": "concurrency 1"})]


@each_framework
def test_a_store_that_is_missing_is_a_span_with_its_error(serve: Any) -> None:
    spans = Spans()
    gone = Limiter("redis://user:secret@127.0.0.1:1", timeout=5.0, on_store_error="raise", policies=POLICIES)
    get = serve(traced(gone, tracer_provider=spans.provider), "login")
    assert get() == 503
    (failed,) = spans.taken()
    assert (failed.attributes or {})["error.type"] == "store_unavailable" and not failed.status.is_ok
    assert "secret" not in failed.to_json()


def test_each_of_the_requests_of_one_loop_has_its_own_event() -> None:
    spans = Spans()
    limiter = AsyncLimiter(policies=POLICIES)
    traced(limiter, tracer_provider=spans.provider)
    limited = asgi.TidegateMiddleware(answer, "login", limiter=limiter, key=lambda scope: scope["path"])

    async def instrumented(scope: Any, receive: Any, send: Any) -> None:
        with spans.tracer.start_as_current_span(scope["path"]):
            await asyncio.sleep(0)
            await limited(scope, receive, send)

    async def main() -> None:
        await asyncio.gather(*(acall(instrumented, path=path) for path in ("/a", "/b", "/a", "/b", "/a")))

    asyncio.run(main())
    assert [(span.name, len(span.events)) for span in spans.taken()] == [("/a", 0), ("/b", 0)] * 2 + [("/a", 1)]


def test_django(serve: Any, asynchronous: bool, redis_url: str, prefix: str) -> None:
    django_settings()
    from django.http import HttpResponse

    spans = Spans()
    limiter = traced(Limiter(redis_url, prefix=prefix, policies=POLICIES, timeout=5.0), tracer_provider=spans.provider)

    def view(_: Any) -> Any:
        return HttpResponse("ok")

    async def async_view(request: Any) -> Any:
        return view(request)

    get = serve(
        {"a": async_view if asynchronous else view}, asynchronous, limiter=limiter, default="login", key=lambda _: KEY
    )
    with spans.tracer.start_as_current_span("request"):
        assert [get("a").status for _ in range(3)] == [200, 200, 429]
    *calls, request = spans.taken()
    assert [span.name for span in calls] == ["tidegate.check"] * 3
    assert events(request) == [DENIED]


def test_a_limiter_that_is_not_traced_has_no_events_beside_one_that_is() -> None:
    spans = Spans()
    traced(Limiter(), tracer_provider=spans.provider)
    get = on_flask(Limiter(policies=POLICIES), "login")
    with spans.tracer.start_as_current_span("request"):
        assert [get() for _ in range(3)] == [200, 200, 429]
    (request,) = spans.taken()
    assert events(request) == []


def test_the_other_kind_of_a_traced_limiter_and_its_meters() -> None:
    spans = Spans()
    limiter = traced(Limiter(policies=POLICIES), tracer_provider=spans.provider)
    meter_limiter(limiter)
    awaitable = limiter.to_async()

    async def main() -> list[bool]:
        return [bool(await awaitable.check("login", KEY)) for _ in range(3)]

    with spans.tracer.start_as_current_span("request"):
        assert asyncio.run(main()) == [True, True, False]
        assert not awaitable.to_blocking().check("login", KEY)
        assert not traced(limiter, tracer_provider=spans.provider).check("login", KEY)
    (request,) = spans.taken()
    assert events(request) == [DENIED] * 3


def test_functions_under_the_decorator_of_a_traced_limiter() -> None:
    spans = Spans()
    limiter = traced(Limiter(policies=POLICIES), tracer_provider=spans.provider)

    @limiter.limit("login", key=KEY)
    def called() -> None: ...

    @limiter.limit("login", key=KEY)
    async def awaited() -> None: ...

    with spans.tracer.start_as_current_span("request"):
        called()
        asyncio.run(awaited())
        with pytest.raises(RateLimited):
            called()
        with pytest.raises(RateLimited):
            asyncio.run(awaited())
    (request,) = spans.taken()
    assert events(request)[:2] == [DENIED] * 2


def test_a_traced_limiter_is_forgotten_with_its_layers() -> None:
    from tidegate._tracing import TRACED

    gc.collect()
    before = len(TRACED)
    get = on_asgi(traced(Limiter(policies=POLICIES)), "login")
    assert get() == 200 and len(TRACED) > before
    del get
    gc.collect()
    assert len(TRACED) == before
