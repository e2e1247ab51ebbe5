"""The metrics of a limiter, for all exporters. The core has the list of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._tidegate import AsyncLimiter, Limiter, metrics
from ._tracing import AnyLimiter, unwrapped


class Metric(NamedTuple):
    """A metric: its names in Prometheus and in OpenTelemetry, its kind, unit, help text and labels."""

    name: str
    dotted: str
    kind: str
    unit: str
    help: str
    labels: list[str]


METRICS = {
    metric["name"]: Metric(**{**metric, "labels": ["limiter", *metric["labels"]]}) for metric in json.loads(metrics())
}


class NamedLimiters:
    """The limiters of an exporter, each under a unique name."""

    def __init__(self) -> None:
        self._limiters: dict[str, AnyLimiter] = {}

    def add(self, limiter: AnyLimiter, name: str) -> None:
        limiter = unwrapped(limiter)
        if not isinstance(limiter, (Limiter, AsyncLimiter)):
            raise TypeError(f"a limiter must be a Limiter or an AsyncLimiter, not {type(limiter).__name__}")
        if name in self._limiters:
            raise ValueError(f"two limiters have the name {name!r}: give one another name, as in name='jobs'")
        self._limiters[name] = limiter

    def samples(self, metric: str | None = None) -> Iterable[tuple[Metric, list[str], Any]]:
        """Returns the values of one metric, or of all, with their label values. The value of a histogram is a dict."""
        for limiter_name, limiter in tuple(self._limiters.items()):
            for name, labels, value in json.loads(limiter._samples(metric)):
                yield METRICS[name], [limiter_name, *labels], value
