"""Instruments and spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from metric_list import listed
from spans import KEY, Spans
from tidegate import AsyncLimiter, Limiter, Policy, RateLimited, StoreError
from tidegate.opentelemetry import meter_limiter, traced


def exported(limiter: Limiter) -> list[Any]:
    reader = InMemoryMetricReader()
    meter_limiter(limiter, name="web", meter_provider=MeterProvider([reader]))
    data = reader.get_metrics_data()
    assert data is not None
    return [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]


def test_the_instruments_are_those_of_the_document() -> None:
    limiter = Limiter("redis://user:secret@127.0.0.1:1", policies={"login": "5/minute"}, timeout=5.0)
    for _ in range(7):
        limiter.check("login", KEY)
    metrics = exported(limiter)
    found = {metric.name: list(metric.data.data_points) for metric in metrics}
    expected = set()
    for one in listed().values():
        parts = [".bucket", ".count", ".sum"] if one.kind == "histogram" else [""]
        expected |= {one.dotted + part for part in parts}
    assert set(found) == expected
    points = {tuple(sorted(point.attributes.items())): point.value for point in found["tidegate.decisions"]}
    assert points[("limiter", "web"), ("outcome", "allowed"), ("policy", "login")] == 5
    assert points[("limiter", "web"), ("outcome", "denied"), ("policy", "login")] == 2
    assert [point.value for point in found["tidegate.store_call_duration_seconds.count"]] == [3]
    assert {metric.name: metric.unit for metric in metrics if metric.unit} == {
        "tidegate.store_call_duration_seconds.sum": "s"
    }
    assert KEY not in str(found) and "secret" not in str(found)


def test_a_call_to_a_store_is_a_span_and_a_denial_an_event(redis_url: str, prefix: str) -> None:
    spans = Spans()
    plain = Limiter(redis_url, prefix=prefix, policies={"login": "fixed-window 2/minute"}, timeout=5.0)
    limiter = traced(plain, tracer_provider=spans.provider)
    with spans.tracer.start_as_current_span("request"):
        for _ in range(4):
            limiter.check("login", KEY)
        limiter.peek("login", KEY)
    *calls, request = spans.taken()
    # The fourth check was denied in process.
    assert [span.name for span in calls] == ["tidegate.check"] * 3
    assert [dict(span.attributes or {}) for span in calls] == [
        {
            "tidegate.policy": "login",
            "tidegate.outcome": outcome,
            "tidegate.source": "store",
            "tidegate.store": next(iter(plain.stats()["breaker"])),
        }
        for outcome in ("allowed", "allowed", "denied")
    ]
    assert all(span.parent is not None and span.parent.span_id == request.context.span_id for span in calls)
    assert all((span.end_time or 0) > (span.start_time or 0) for span in calls)
    denied = {"tidegate.policy": "login", "tidegate.limit": "fixed-window 2/60s"}
    assert [(event.name, dict(event.attributes or {})) for event in request.events] == [("tidegate.denied", denied)] * 2


def test_async_calls_and_holds(redis_url: str, prefix: str) -> None:
    spans = Spans()

    async def main() -> None:
        limiter = traced(AsyncLimiter(redis_url, prefix=prefix, timeout=5.0), tracer_provider=spans.provider)
        assert await limiter.check("5/minute", KEY)
        assert (await limiter.check_all([("5/minute", KEY), ("9/minute", KEY)])).allowed
        async with limiter.hold("concurrency 1", KEY):
            with pytest.raises(RateLimited):
                await limiter.hold("concurrency 1", KEY)
        await limiter.close()

    asyncio.run(main())
    taken = spans.taken()
    assert [span.name for span in taken] == ["tidegate.check", "tidegate.check_all", "tidegate.hold", "tidegate.hold"]
    assert [(span.attributes or {})["tidegate.outcome"] for span in taken] == ["allowed"] * 3 + ["denied"]


def test_memory_makes_no_spans_and_a_failure_is_one() -> None:
    spans = Spans()
    with spans.tracer.start_as_current_span("request"):
        memory = traced(Limiter(), tracer_provider=spans.provider)
        assert memory.check("1/minute", KEY) and not memory.check("1/minute", KEY)
        failing = Limiter("redis://user:secret@127.0.0.1:1", timeout=5.0, on_store_error="raise")
        tracing = traced(failing, tracer_provider=spans.provider)
        for call in (
            lambda: tracing.check("5/minute", KEY),
            lambda: tracing.charge(policy=Policy("9/minute", name="named"), key=KEY, cost=1),
            lambda: tracing.check_all(iter([("5 per minute", KEY), ("6/minute", KEY, 2)])),
        ):
            with pytest.raises(StoreError):
                call()  # type: ignore[no-untyped-call]
    *failures, request = spans.taken()
    named = [(failure.attributes or {})["tidegate.policy"] for failure in failures]
    assert named == ["5/minute", "named", "5/minute, 6/minute"]
    failed = failures[0]
    assert [event.name for event in request.events] == ["tidegate.denied"]
    assert (failed.attributes or {})["error.type"] == "store_unavailable" and not failed.status.is_ok
    assert "secret" not in failed.to_json()
    with pytest.raises(TypeError, match="not str"):
        traced("memory://")  # type: ignore[type-var]
