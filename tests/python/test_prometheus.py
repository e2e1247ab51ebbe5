"""The collector for prometheus_client: alone, and over several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from metric_list import listed
from tidegate import AsyncLimiter, Limiter, ManualClock
from tidegate.prometheus import TidegateCollector

UNREACHABLE = "redis://user:secret@127.0.0.1:1/0"


def scraped(registry: CollectorRegistry) -> dict[tuple[str, tuple[str, ...]], float]:
    """Returns each sample by its name and its label values, in the order of the label names."""
    text = generate_latest(registry).decode()
    assert "secret" not in text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_the_metrics_are_those_of_the_document() -> None:
    limiter = Limiter(UNREACHABLE, policies={"login": "5/minute"}, timeout=5.0)
    limiter.check("login", "alice")
    exported = {}
    for family in TidegateCollector(limiter).collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.samples, name
        exported[name] = (family.type, labels)
    assert exported == {name: (one.kind, {"limiter", *one.labels}) for name, one in listed().items()}


def test_the_values_are_those_of_the_stats() -> None:
    registry = CollectorRegistry()
    limiter = Limiter(policies={"login": "fixed-window 5/minute"}, clock=ManualClock())
    jobs = AsyncLimiter(UNREACHABLE, timeout=5.0)
    registry.register(TidegateCollector(limiter).add(jobs, "jobs"))
    for _ in range(8):
        limiter.check("login", "alice")
    for _ in range(5):
        jobs.to_blocking().check("1/minute", "bob")
    values = scraped(registry)
    assert values["tidegate_decisions_total", ("default", "allowed", "login")] == 5
    assert values["tidegate_decisions_total", ("default", "denied", "login")] == 3
    assert values["tidegate_answers_total", ("default", "login", "store")] == 8
    assert values["tidegate_near_limit_total", ("default", "login")] == 2
    shown = next(iter(jobs.stats()["breaker"]))
    assert values["tidegate_store_state", ("jobs", "lost", shown)] == 1
    assert values["tidegate_store_state", ("jobs", "ok", shown)] == 0
    assert values["tidegate_store_errors_total", ("store_unavailable", "jobs")] == 3
    assert values["tidegate_fallback_answers_total", ("local", "jobs")] == 5
    assert values["tidegate_store_call_duration_seconds_count", ("jobs",)] == 3
    assert values["tidegate_store_call_duration_seconds_bucket", ("+Inf", "jobs")] == 3
    assert values["tidegate_store_call_duration_seconds_bucket", ("2.5", "jobs")] == 3
    assert not any("alice" in label or "bob" in label for _, labels in values for label in labels)


def test_two_collectors_of_one_registry_are_refused() -> None:
    registry = CollectorRegistry()
    registry.register(TidegateCollector(Limiter()))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(TidegateCollector(Limiter()))
    with pytest.raises(ValueError, match="two limiters have the name 'default'"):
        TidegateCollector(Limiter()).add(Limiter(), "default")
    with pytest.raises(TypeError, match="not str"):
        TidegateCollector("memory://")  # type: ignore[arg-type]


WORKER = """
import os, sys, time
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from tidegate import Limiter
from tidegate.prometheus import TidegateCollector

limiter = Limiter(sys.argv[1], policies={"login": "fixed-window 5/minute"}, timeout=5.0)
limiter.check("login", "parent")
collector = TidegateCollector(limiter, interval=0.02)
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(10):
            limiter.check("login", f"k{number}")
        # The first one writes by itself, at once; the others leave it to the thread.
        collector.write() if number == 0 else time.sleep(0.5)
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
limiter.check("login", "parent")
collector.write()
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
sys.stdout.write(generate_latest(registry).decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("store", ["memory://", "redis://127.0.0.1:1/0"])
def test_processes_add_up_in_the_multiprocess_mode(store: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WORKER, store]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(done.stdout):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in ("limiter", "pid")}
            found[f"{sample.name} {json.dumps(labels, sort_keys=True)}"] = sample.value
    allowed, denied = (
        found[f'tidegate_decisions_total {{"outcome": "{outcome}", "policy": "login"}}']
        for outcome in ("allowed", "denied")
    )
    assert (allowed, denied) == (3 * 5 + 2, 3 * 5)
    exported = {family.name for family in text_string_to_metric_families(done.stdout)}
    assert exported <= {name.removesuffix("_total") for name in listed()}
    if store != "memory://":
        calls = found["tidegate_store_call_duration_seconds_count {}"]
        failed = found['tidegate_store_errors_total {"code": "store_unavailable"}']
        assert calls == failed == found['tidegate_store_call_duration_seconds_bucket {"le": "+Inf"}']
        assert calls >= 4, "each process has asked the store"
