"""How much four processes with 16 callers each use of the limits of a service, and how often they are refused.

It takes a quarter of an hour, and a machine on which little else runs. `TIDEGATE_PROOF=1` runs it. It prints a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from outgoing_share import HEADING, Case, Report, run
from paths import ROOT
from strict.dialects import DIALECTS
from strict_services import StrictServer

pytestmark = pytest.mark.skipif(os.environ.get("TIDEGATE_PROOF") != "1", reason="TIDEGATE_PROOF=1 runs it")

CLIENTS = ["httpx-async", "aiohttp", "fetch", "fetch"]
# The number of windows for which each service is called.
WINDOWS = int(os.environ.get("TIDEGATE_PROOF_WINDOWS", "5"))

GIVEN = [
    Case("fixed-window", 200, policy="fixed-window 200/10s"),
    Case("sliding-window", 200, policy="200/10s"),
    Case("token-bucket", 200, policy="token-bucket 200/10s"),
    Case("token-bucket", 20_000, policy="100000 requests/10s; token-bucket 20000 tokens/10s", tokens=200),
    Case("sliding-window", 20_000, policy="100000 requests/10s; 20000 tokens/10s", tokens=200),
    Case("concurrency", 8, policy="concurrency 8", wait=0.05),
]
SHORT = [
    Case("token-bucket", 20, window=1, burst=1, policy="gcra 20/s burst 1"),
    Case("fixed-window", 20, window=1, policy="fixed-window 20/s"),
    Case("sliding-window", 20, window=1, policy="20/s"),
]
# Dialects that do not announce the limit, or its reset.
SILENT = ("retry-after", "retry-info", "shopify")
LEARNED = [Case("fixed-window", 200, dialect=dialect) for dialect in DIALECTS]

_reports: list[Report] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    lines = [HEADING, *(report.line() for report in _reports)]
    print("", *lines, sep="\n")
    (ROOT / ".cache/outgoing-proof.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def reported(case: Case, strict: StrictServer, store: str, prefix: str, windows: int = WINDOWS) -> Report:
    report = run(case, strict, store, prefix, CLIENTS, windows=windows)
    _reports.append(report)
    print(report.line(), flush=True)
    return report


@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_a_limit_that_is_given_is_used_and_never_passed(
    case: Case, strict: StrictServer, redis_url: str, prefix: str
) -> None:
    report = reported(case, strict, redis_url, prefix)
    assert report.refused == 0
    assert report.share >= (0.97 if case.book != "concurrency" else 0.5)


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_short_windows_are_seldom_passed(case: Case, strict: StrictServer, redis_url: str, prefix: str) -> None:
    report = reported(case, strict, redis_url, prefix, windows=6 * WINDOWS)
    assert report.refused <= 0.005 * report.admitted


@pytest.mark.parametrize("case", LEARNED, ids=str)
def test_a_limit_that_is_not_given_is_learned(case: Case, strict: StrictServer, redis_url: str, prefix: str) -> None:
    report = reported(case, strict, redis_url, prefix)
    if case.dialect in SILENT:
        # One refusal in each window after the first two.
        assert report.refused_from(2 * case.window) <= WINDOWS - 2
    else:
        # Each process may be refused once at the start, and then none is.
        assert report.refused_from(case.window) == 0
    assert report.share >= 0.9
    # Others may still send for 50 ms after a refusal.
    assert report.late <= 0.05


@pytest.mark.parametrize("dialect", ["ietf", "openai", "retry-after"])
def test_a_limit_that_is_halved_is_learned(dialect: str, strict: StrictServer, redis_url: str, prefix: str) -> None:
    case = Case("fixed-window", 200, dialect=dialect)
    report = run(case, strict, redis_url, prefix, CLIENTS, windows=8, becomes=100)
    print(report.line(), flush=True)
    changed = 4 * case.window
    assert report.refused_from(changed + case.window) <= (3 if dialect in SILENT else 0)
    used = sum(row[3] for row in report.seconds if changed + case.window <= row[0] < changed + 3 * case.window)
    assert 180 <= used <= 200
