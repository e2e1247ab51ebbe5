"""Metrics for `prometheus_client`: `pip install tidegate[prometheus]`.

    from prometheus_client import REGISTRY
    from tidegate.prometheus import TidegateCollector

    REGISTRY.register(TidegateCollector(limiter))

The numbers are read when Prometheus scrapes. Nothing runs between scrapes. docs/metrics.md lists the metrics.

In the multiprocess mode of prometheus_client (`PROMETHEUS_MULTIPROC_DIR`, gunicorn with several workers) a scrape sees
only the files that each process has written into that directory. There the collector has a thread in each process that
writes every second, and it writes when the process ends. To write at once, call `write()`. A worker that gunicorn
forked from a preloaded application starts at zero, and gets its own thread.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from prometheus_client import Counter, Gauge, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from . import _metrics
from ._metrics import METRICS, NamedLimiters
from ._tracing import AnyLimiter

__all__ = ["TidegateCollector"]

FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class TidegateCollector(Collector):
    """The metrics of one limiter, or of several. You can `add` more, each under its own name.

    `name` is the value of the label `limiter`. `interval` is the time in seconds between two writes of the thread of
    the multiprocess mode.
    """

    def __init__(self, limiter: AnyLimiter, *, name: str = "default", interval: float = 1.0) -> None:
        self._limiters = NamedLimiters()
        self._limiters.add(limiter, name)
        # prometheus_client has chosen this from the environment when it was imported.
        multiprocess = values.ValueClass is not values.MutexValue
        self._writer = _MultiprocessWriter(self._limiters, interval) if multiprocess else None

    def add(self, limiter: AnyLimiter, name: str) -> TidegateCollector:
        """Exports one more limiter. `name` is its value of the label `limiter`."""
        self._limiters.add(limiter, name)
        return self

    def write(self) -> None:
        """Writes the numbers of this process now. Outside the multiprocess mode there is nothing to write."""
        if self._writer is not None:
            self._writer.write()

    def describe(self) -> list[Metric]:
        """Returns the metrics without values. A registry uses them to refuse another collector of the same names."""
        return list(_families().values())

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics of this process now."""
        families = _families()
        for metric, labels, value in self._limiters.samples():
            family = families[metric.name]
            if metric.kind == "histogram":
                buckets = list(zip(_bounds(value), map(float, value["totals"]), strict=True))
                family.add_metric(labels, buckets=buckets, sum_value=value["sum"])
            else:
                family.add_metric(labels, value)
        yield from families.values()


def _families() -> dict[str, Any]:
    return {name: FAMILIES[metric.kind](name, metric.help, labels=metric.labels) for name, metric in METRICS.items()}


def _bounds(histogram: dict[str, Any]) -> list[str]:
    return [*map(floatToGoString, histogram["bounds"]), "+Inf"]


class _MultiprocessWriter:
    """Writes the numbers of this process where a MultiProcessCollector of any process finds them."""

    def __init__(self, limiters: NamedLimiters, interval: float) -> None:
        self._limiters = limiters
        self._interval = interval
        # They are not registered, because a scrape finds them in the files.
        self._metrics = {name: _metric(metric) for name, metric in METRICS.items() if metric.kind != "histogram"}
        self._buckets: dict[tuple[str, ...], Any] = {}
        self._begin()
        alive = weakref.ref(self)
        # No child is forked while the thread writes. It would inherit a lock of prometheus_client, held for ever.
        os.register_at_fork(
            before=lambda: _call(alive, lambda writer: writer._lock.acquire()),
            after_in_parent=lambda: _call(alive, lambda writer: writer._lock.release()),
            after_in_child=lambda: _call(alive, _MultiprocessWriter._begin),
        )
        atexit.register(_call, alive, _MultiprocessWriter.write)

    def _begin(self) -> None:
        """Starts in a new process. Its limiters start at zero, and it has no thread yet."""
        self._lock = threading.Lock()
        self._written: dict[tuple[str, ...], float] = {}
        threading.Thread(target=_write_always, args=(weakref.ref(self), self._interval), daemon=True).start()

    def write(self) -> None:
        with self._lock:
            for metric, labels, value in self._limiters.samples():
                self._write(metric, tuple(labels), value)

    def _write(self, metric: _metrics.Metric, labels: tuple[str, ...], value: Any) -> None:
        if metric.kind == "gauge":
            self._metrics[metric.name].labels(*labels).set(value)
        elif metric.kind == "counter":
            counter = self._metrics[metric.name].labels(*labels)
            self._add((metric.name, *labels), value, counter)
        else:
            for bound, count in zip(_bounds(value), value["counts"], strict=True):
                self._add((metric.name, *labels, bound), count, self._value(metric, "_bucket", labels, bound))
            self._add((metric.name, *labels), value["sum"], self._value(metric, "_sum", labels))

    def _add(self, key: tuple[str, ...], value: float, counter: Any) -> None:
        """Adds only the difference, because another collector of this process may write to the same metric."""
        before = self._written.get(key, 0.0)
        if value > before:
            counter.inc(value - before)
            self._written[key] = value

    def _value(self, metric: _metrics.Metric, suffix: str, labels: tuple[str, ...], *bound: str) -> Any:
        """Returns a value as the Histogram of prometheus_client keeps it. That class takes only single observations."""
        key = (metric.name, suffix, *labels, *bound)
        if key not in self._buckets:
            names = (*metric.labels, *(["le"] if bound else []))
            self._buckets[key] = values.ValueClass(
                "histogram", metric.name, metric.name + suffix, names, (*labels, *bound), metric.help
            )
        return self._buckets[key]


def _metric(metric: _metrics.Metric) -> Any:
    if metric.kind == "gauge":
        # The sum over the living processes: the number of them that find the store in that state.
        return Gauge(metric.name, metric.help, metric.labels, registry=None, multiprocess_mode="livesum")
    return Counter(metric.name, metric.help, metric.labels, registry=None)


def _call(alive: weakref.ref[_MultiprocessWriter], method: Any) -> bool:
    writer = alive()
    if writer is not None:
        method(writer)
    return writer is not None


def _write_always(alive: weakref.ref[_MultiprocessWriter], interval: float) -> None:
    pause = threading.Event()
    while _call(alive, _MultiprocessWriter.write):
        pause.wait(interval)
