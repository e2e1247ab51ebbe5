"""The books of the strict servers keep their promises, and the dialects announce them."""

from __future__ import annotations

import copy
import importlib
import json
import random
from email.utils import formatdate
from typing import Any

import pytest

from strict.books import Book, admit, book_of
from strict.dialects import DIALECTS

# Imported by name, because the types of the harness are checked before the package is there.
Observation: Any = importlib.import_module("tidegate.outgoing").Observation

WINDOW, LIMIT = 10.0, 7
TIMED = ["token-bucket", "fixed-window", "sliding-window"]


def book(kind: str, **more: Any) -> Book:
    return book_of({"book": kind, "limit": LIMIT, "window": WINDOW, **more}, 1000.0)


def traffic(seed: int) -> list[tuple[float, int]]:
    """Returns moments and costs, in bursts with pauses."""
    numbers, now, made = random.Random(seed), 1000.0, []
    for _ in range(400):
        now += numbers.choice([0.0, 0.01, 0.7, 0.7, 4.0])
        made.append((now, numbers.choice([1, 1, 1, 2, 7])))
    return made


def allowed(kind: str, before: list[tuple[float, int]], now: float, cost: int) -> bool:
    """Applies the definition of a book to all admissions before. It is slow, and keeps no state."""
    if kind == "fixed-window":
        begin = 1000.0 + (now - 1000.0) // WINDOW * WINDOW
        return sum(units for at, units in before if at >= begin) + cost <= LIMIT
    if kind == "sliding-window":
        return sum(units for at, units in before if at > now - WINDOW) + cost <= LIMIT
    # Any span of time admits at most the bucket and the inflow.
    spans = [(at, sum(units for then, units in before if then >= at) + cost) for at, _ in before]
    return cost <= LIMIT and all(units <= LIMIT + (now - at) * LIMIT / WINDOW + 1e-6 for at, units in spans)


@pytest.mark.parametrize("kind", TIMED)
def test_a_book_admits_what_its_definition_does(kind: str) -> None:
    for seed in range(5):
        kept = book(kind)
        before: list[tuple[float, int]] = []
        for now, cost in traffic(seed):
            verdict = admit([kept], [cost], now)[0]
            assert verdict.admitted == allowed(kind, before, now, cost), (seed, now)
            before += [(now, cost)] * verdict.admitted
        assert 50 < len(before) < 400


@pytest.mark.parametrize("kind", TIMED)
def test_a_refusal_names_the_moment_at_which_the_request_is_admitted(kind: str) -> None:
    for seed in range(5):
        kept, refused = book(kind), 0
        for now, cost in traffic(seed):
            verdict = admit([kept], [cost], now)[0]
            if not verdict.admitted:
                refused += 1
                assert 0 < verdict.retry_after <= WINDOW
                ahead = copy.deepcopy(kept)
                assert not ahead.may(now + verdict.retry_after - 1e-4, cost).admitted
                assert ahead.may(now + verdict.retry_after + 1e-4, cost).admitted
        assert refused > 50


def test_a_bucket_of_one_keeps_the_pace() -> None:
    kept = book("token-bucket", burst=1)
    times = [step / 100 for step in range(3000) if admit([kept], [1], 1000 + step / 100)[0].admitted]
    assert len(times) == 21
    assert all(later - sooner >= WINDOW / LIMIT - 1e-6 for sooner, later in zip(times, times[1:]))


def test_concurrency_counts_what_has_not_ended() -> None:
    kept = book("concurrency", limit=2)
    assert [admit([kept], [1], 0.0)[0].admitted for _ in range(3)] == [True, True, False]
    kept.end(1)
    assert [admit([kept], [1], 0.0)[0].admitted for _ in range(2)] == [True, False]


@pytest.mark.parametrize("kind", [*TIMED, "concurrency"])
def test_a_limit_that_changes_counts_at_once_and_what_is_used_stays_used(kind: str) -> None:
    kept = book(kind, limit=8)
    admit([kept], [3], 1000.0)
    kept.change(1000.0, 4)
    assert kept.may(1000.0, 1).remaining <= 4
    assert not kept.may(1000.0, 5).admitted
    assert kept.may(1000.0, 1).admitted


def test_all_books_charge_or_none_does() -> None:
    many, few = book("sliding-window"), book("sliding-window", limit=1)
    for _ in range(5):
        admit([many, few], [1, 1], 1000.0)
    assert many.may(1000.0, 1).remaining == LIMIT - 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_says_what_the_books_say(dialect: str) -> None:
    now = 1_700_000_000.0
    kept = book_of({"book": "fixed-window", "limit": 4, "window": 10}, now)

    def told(cost: int, at: float) -> Any:
        verdicts = admit([kept], [cost], at)
        refused = not verdicts[0].admitted
        status, fields, body = DIALECTS[dialect](verdicts, not refused, at)
        fields = {"Date": formatdate(at, usegmt=True), **fields}
        text = json.dumps(body) if refused else ""
        return Observation.from_headers(fields, at, status=status if refused else 200, body=text)

    states = dialect not in ("retry-after", "retry-info")
    assert [(one.limit, one.remaining) for one in told(1, now + 3)] == ([(4, 3)] if states else [])
    assert 7 <= max(one.retry_after or one.reset_after or 0.0 for one in told(4, now + 3)) <= 8
