"""Calls of several processes wait in one line. tests/python/long/test_outgoing_proof.py measures the effect."""

from __future__ import annotations

from outgoing_share import Case, run
from strict_services import StrictServer


def test_processes_share_the_limit_of_a_service(strict: StrictServer, redis_url: str, prefix: str) -> None:
    case = Case("sliding-window", 60, window=2, policy="60/2s")
    report = run(case, strict, redis_url, prefix, ["httpx-async", "requests"], windows=3, callers=8)
    assert all(answers.get("200", 0) > 0 for answers in report.answers)
    # A machine that stalls sends a few too early. Without a common line half of all calls are refused, and each process
    # alone would send twice the allowed number.
    assert report.refused <= 0.2 * report.admitted
    assert report.admitted > 60
