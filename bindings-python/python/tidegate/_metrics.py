"""The metrics of a limiter, as its exporters share them. docs/metrics.md has the same list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._tidegate import AsyncLimiter, Limiter
from ._tracing import AnyLimiter, unwrapped


class Metric(NamedTuple):
    """A metric: its name in Prometheus without `_total`, its kind, what it counts, its labels beside `limiter`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def dotted(self) -> str:
        """Its name in OpenTelemetry."""
        return self.name.replace("tidegate_", "tidegate.", 1)


DECISIONS = Metric("tidegate_decisions", "counter", "Decisions by policy and outcome.", ("policy", "outcome"))
ANSWERS = Metric("tidegate_answers", "counter", "Decisions by policy and what gave the answer.", ("policy", "source"))
NEAR_LIMIT = Metric("tidegate_near_limit", "counter", "Admitted with 80 % or more of the limit used.", ("policy",))
SHADOW = Metric("tidegate_shadow_denials", "counter", "Allowed, and a shadow policy would have denied.", ("policy",))
DURATION = Metric("tidegate_store_call_duration_seconds", "histogram", "How long calls to shared stores took.")
BATCH_SIZE = Metric("tidegate_store_batch_size", "histogram", "How many operations each script call carried.")
ERRORS = Metric("tidegate_store_errors", "counter", "Calls to shared stores that failed, by error code.", ("code",))
STATE = Metric("tidegate_store_state", "gauge", "1 for the state that a shared store is in.", ("store", "state"))
FALLBACKS = Metric("tidegate_fallback_answers", "counter", "Answers of on_store_error.", ("choice",))
# The events without a label, by the name of their counter.
EVENTS = {
    "asked": Metric("tidegate_store_operations", "counter", "Operations that were sent to shared stores."),
    "withheld": Metric("tidegate_store_withheld", "counter", "Operations that were not sent to a lost store."),
    "lost": Metric("tidegate_store_losses", "counter", "How often a shared store was lost."),
    "deny_cache": Metric("tidegate_deny_cache_answers", "counter", "Denials that were repeated in process."),
    "lease": Metric("tidegate_lease_answers", "counter", "Answers from units taken in advance."),
    "forgotten_denials": Metric("tidegate_forgotten_denials", "counter", "Denials forgotten for lack of max_bytes."),
    "hold_renewals_failed": Metric("tidegate_hold_renewals_failed", "counter", "Renewals of holds that failed."),
    "holds_lost": Metric("tidegate_holds_lost", "counter", "Holds that were lost."),
    "acquires_refused": Metric("tidegate_acquires_refused", "counter", "Calls of acquire that found no place to wait."),
}
METRICS = (
    DECISIONS, ANSWERS, NEAR_LIMIT, SHADOW, DURATION, BATCH_SIZE, ERRORS, STATE, FALLBACKS, *EVENTS.values(),
)  # fmt: skip
STATES = ("ok", "lost", "refusing")


class Sample(NamedTuple):
    """A value of a metric; that of a histogram is its dict of bounds, counts and sum."""

    metric: Metric
    labels: tuple[str, ...]
    value: Any


def samples(stats: Mapping[str, Any]) -> Iterable[Sample]:
    """The values of all metrics, from the stats of a limiter."""
    for policy, counted in stats["policies"].items():
        for outcome in ("allowed", "denied", "unavailable"):
            yield Sample(DECISIONS, (policy, outcome), counted[outcome])
        for source, count in counted["sources"].items():
            yield Sample(ANSWERS, (policy, source), count)
        yield Sample(NEAR_LIMIT, (policy,), counted["near_limit"])
        yield Sample(SHADOW, (policy,), counted["shadow_denied"])
    store, counters = stats["store"], stats["counters"]
    yield Sample(DURATION, (), store["latency"])
    yield Sample(BATCH_SIZE, (), store["batch_size"])
    for code, count in store["errors"].items():
        yield Sample(ERRORS, (code,), count)
    for url, state in stats["breaker"].items():
        for other in STATES:
            yield Sample(STATE, (url, other), int(state == other))
    for choice in ("open", "closed", "local"):
        yield Sample(FALLBACKS, (choice,), counters[f"fallback_{choice}"])
    for name, metric in EVENTS.items():
        yield Sample(metric, (), counters[name])


class NamedLimiters:
    """The limiters of an exporter, each under the name that tells it apart."""

    def __init__(self) -> None:
        self._limiters: dict[str, AnyLimiter] = {}

    def add(self, limiter: AnyLimiter, name: str) -> None:
        limiter = unwrapped(limiter)
        if not isinstance(limiter, (Limiter, AsyncLimiter)):
            raise TypeError(f"a limiter is a Limiter or an AsyncLimiter, not {type(limiter).__name__}")
        if name in self._limiters:
            raise ValueError(f"there are two limiters of the name {name!r}: give one another, as in name='jobs'")
        self._limiters[name] = limiter

    def samples(self) -> Iterable[tuple[str, Sample]]:
        """Each value, with the name of its limiter."""
        for name, limiter in tuple(self._limiters.items()):
            for sample in samples(limiter.stats()):
                yield name, sample
