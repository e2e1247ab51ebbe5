"""Meters and spans for OpenTelemetry: `pip install tidegate[opentelemetry]`.

    from tidegate.opentelemetry import meter_limiter, traced

    meter_limiter(limiter)                  # observable instruments, read when the meter provider exports
    limiter = traced(limiter)               # the same calls, with a span for each call to a store
    tg = Tidegate(app, limiter=limiter)     # and so do the checks of a web layer

A call that goes to a store is a span `tidegate.check` (or `charge`, `check_all`, `acquire`, `hold`), with the
attributes `tidegate.policy`, `tidegate.outcome`, `tidegate.source` and `tidegate.store`, a URL without secrets. A call
that this process answers by itself, from memory, the deny cache, a lease or the fallback, makes no span. Every denial
is an event `tidegate.denied` of the current span with `tidegate.policy` and `tidegate.limit`. The key is never part of
any of them. docs/metrics.md lists the instruments.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from opentelemetry import context, trace
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, TracerProvider

from ._hold import Holding
from ._metrics import METRICS, Metric, NamedLimiters
from ._tidegate import Admission, AsyncLimiter, Decision, Limiter, __version__
from ._tracing import AnyLimiter, LimiterWrapper, to_async, to_blocking, trace_calls, unwrapped
from .errors import RateLimited, StoreError, TidegateError

__all__ = ["TracedLimiter", "meter_limiter", "traced"]

L = TypeVar("L", bound=Limiter | AsyncLimiter)
# The calls that decide.
TRACED = ("check", "charge", "check_all", "acquire", "hold", "_admit", "_turn")


def meter_limiter(limiter: AnyLimiter, *, name: str = "default", meter_provider: MeterProvider | None = None) -> None:
    """Makes observable instruments of the limiter's stats. `name` is the attribute `limiter` of all of them.

    OpenTelemetry has no observable histogram. So each of the two histograms becomes the counters that Prometheus makes
    of one: `….bucket` with the attribute `le`, `….count` and `….sum`.
    """
    limiters = NamedLimiters()
    limiters.add(limiter, name)
    meter = get_meter("tidegate", __version__, meter_provider=meter_provider)
    for metric in METRICS.values():
        if metric.kind == "histogram":
            for part in ("bucket", "count", "sum"):
                _observe(meter, metric, part, limiters)
        else:
            _observe(meter, metric, "", limiters)


def _observe(meter: Meter, metric: Metric, part: str, limiters: NamedLimiters) -> None:
    def observations(_: CallbackOptions) -> Iterable[Observation]:
        for _metric, labels, value in limiters.samples(metric.name):
            yield from _parts(value, part, dict(zip(metric.labels, labels, strict=True)))

    make = meter.create_observable_gauge if metric.kind == "gauge" else meter.create_observable_counter
    full_name = f"{metric.dotted}.{part}" if part else metric.dotted
    unit = metric.unit if part == "sum" else ""
    make(full_name, callbacks=[observations], unit=unit, description=metric.help)


def _parts(value: Any, part: str, attributes: dict[str, str]) -> Iterable[Observation]:
    if not part:
        yield Observation(value, attributes)
    elif part != "bucket":
        yield Observation(value[part], attributes)
    else:
        for bound, total in zip([*value["bounds"], "+Inf"], value["totals"], strict=True):
            yield Observation(total, {**attributes, "le": str(bound)})


def traced(limiter: L, *, tracer_provider: TracerProvider | None = None) -> L:
    """Returns the limiter with spans. It has the same calls, and every other attribute of the limiter.

    You can use this `TracedLimiter` in place of the limiter everywhere. The web layers and the functions under
    `@limiter.limit` have spans from now on, with the TracedLimiter or the given limiter. Your own calls have spans only
    if you make them on the TracedLimiter.
    """
    limiter = unwrapped(limiter)
    if not isinstance(limiter, (Limiter, AsyncLimiter)):
        raise TypeError(f"a limiter must be a Limiter or an AsyncLimiter, not {type(limiter).__name__}")
    tracer = trace.get_tracer("tidegate", __version__, tracer_provider)
    # The stores never change. A limiter of several is named by all of them.
    wrap = functools.partial(TracedLimiter, tracer=tracer, store=", ".join(sorted(limiter.stats()["breaker"])))
    trace_calls(limiter, wrap)
    traced_limiter: Any = wrap(limiter)
    return traced_limiter  # type: ignore[no-any-return]


class TracedLimiter(LimiterWrapper):
    """See `traced`."""

    def __init__(self, limiter: AnyLimiter, tracer: Tracer, store: str) -> None:
        self._limiter = limiter
        self._tracer = tracer
        # The URLs without secrets, or empty for memory.
        self._store = store

    def to_async(self) -> TracedLimiter:
        """Returns this limiter for event loops."""
        return TracedLimiter(to_async(self._limiter), self._tracer, self._store)

    def to_blocking(self) -> TracedLimiter:
        """Returns this limiter for threads."""
        return TracedLimiter(to_blocking(self._limiter), self._tracer, self._store)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._limiter, name)
        if name not in TRACED:
            return call
        return self._awaited(name, call) if isinstance(self._limiter, AsyncLimiter) else self._called(name, call)

    def __enter__(self) -> TracedLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self._limiter.close()

    async def __aenter__(self) -> TracedLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        closing = self._limiter.close()
        if closing is not None:
            await closing

    def _called(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            arguments, options = _twice(name, arguments, options)
            began = time.time_ns()
            try:
                result = call(*arguments, **options)
            except Exception as error:
                self._failed(name, began, error, arguments, options)
                raise
            self._ended(name, began, result)
            return result

        return run

    def _awaited(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*arguments: Any, **options: Any) -> Any:
            arguments, options = _twice(name, arguments, options)
            began = time.time_ns()
            try:
                result = await call(*arguments, **options)
            except Exception as error:
                self._failed(name, began, error, arguments, options)
                raise
            self._ended(name, began, result)
            return result

        if name == "hold":
            return lambda *arguments, **options: Holding(run(*arguments, **options))
        return run

    def _ended(self, name: str, began: int, result: Any) -> None:
        if name == "_turn":
            self._turned(began, result)
        elif isinstance(result, Admission):
            for is_hold, decision, step_began, step_ended in result.steps:
                step = "hold" if is_hold else "check_all" if decision.decisions else "check"
                self._decided(step, began + step_began, decision, began + step_ended)
        else:
            self._decided(name, began, result if isinstance(result, Decision) else result.decision)

    def _turned(self, began: int, turn: Admission) -> None:
        # A call that waits makes its decision later.
        if not turn.waits:
            holds = any(limit.algorithm == "concurrency" for limit in turn.decision.limits)
            self._decided("hold" if holds else "acquire", began, turn.decision)

    def _decided(self, name: str, began: int, decision: Decision, ended: int | None = None) -> None:
        if self._store and decision.source == "store":
            outcome = "allowed" if decision else "unavailable" if decision.unavailable else "denied"
            said = {"tidegate.policy": decision.policy, "tidegate.outcome": outcome, "tidegate.source": "store"}
            self._span(name, began, said, ended=ended)
        if not decision:
            denied = {"tidegate.policy": decision.policy, "tidegate.limit": _limit(decision)}
            trace.get_current_span().add_event("tidegate.denied", denied)

    def _failed(self, name: str, began: int, error: Exception, arguments: tuple[Any, ...], options: Any) -> None:
        if isinstance(error, RateLimited):
            self._ended(name, began, error.decision)
        elif self._store and isinstance(error, StoreError):
            attributes = {"tidegate.outcome": "error", "error.type": error.code}
            several = name in ("check_all", "_admit")
            given = arguments[0] if arguments else options["entries" if several else "policy"]
            if name == "_turn":
                name, given = "acquire", given.policy
            # A limiter that was closed meanwhile knows no policies.
            with contextlib.suppress(TidegateError):
                policies = [getattr(entry[0], "policy", entry[0]) for entry in given] if several else [given]
                asked = [self._limiter.policy(policy) for policy in policies]
                if name == "_admit":
                    held = [policy for policy in asked if any(one.algorithm == "concurrency" for one in policy.limits)]
                    name, asked = ("hold", held[:1]) if held else ("check_all" if len(asked) > 1 else "check", asked)
                attributes["tidegate.policy"] = ", ".join(policy.name for policy in asked)
            self._span(name, began, attributes, error.code)

    def _span(
        self, name: str, began: int, attributes: dict[str, str], failure: str | None = None, ended: int | None = None
    ) -> None:
        """Makes the span of a call after its end, because only then is it known if the call went to a store."""
        span = self._tracer.start_span(
            f"tidegate.{name}",
            context=context.get_current(),
            kind=SpanKind.CLIENT,
            attributes={**attributes, "tidegate.store": self._store},
            start_time=began,
        )
        if failure is not None:
            # Not the message: it may contain an argument of the caller.
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(ended)


def _twice(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call so that they can be read twice. A call of a web layer also records its steps."""
    kept = {word: _kept(one) for word, one in options.items()}
    return tuple(map(_kept, arguments)), {**kept, "records_steps": True} if name == "_admit" else kept


def _kept(given: Any) -> Any:
    return list(given) if isinstance(given, Iterator) else given


def _limit(decision: Decision) -> str:
    """Returns the limit that refused, as its count and period in seconds. Held units have no period."""
    refused = next((limit for limit in decision.limits if limit.exceeded), None)
    if refused is None:
        return ""
    count = f"{refused.algorithm} {refused.limit}"
    return count if refused.algorithm == "concurrency" else f"{count}/{refused.period:g}s"
