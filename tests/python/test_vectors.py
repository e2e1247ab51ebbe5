"""The shared vectors give the same answers as in every other language, over every store and through both limiters."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import vectors
from tidegate import AsyncLimiter, Limiter

CASES = vectors.cases()
KINDS = (Limiter, AsyncLimiter)


def is_run(index: int, case: dict[str, Any], kind: type[Any], store: str) -> bool:
    """True if a case runs. A thread that waits cannot be cancelled. Everything behind the URL of PostgreSQL is the
    core's own, whose tests run all cases there, so an eighth shows that both meet."""
    if kind is Limiter and vectors.cancels(case):
        return False
    return store != "postgres" or bool(os.environ.get("TIDEGATE_FULL")) or index % 8 == 0


RUNS = [
    pytest.param(case, kind, store, id=f"{name}-{kind.__name__}-{store}")
    for index, (name, case) in enumerate(CASES)
    for kind in KINDS
    for store in ("memory", "file", "redis", "postgres")
    if is_run(index, case, kind, store)
]


def test_there_are_vectors() -> None:
    assert len(CASES) > 100


@pytest.mark.parametrize(("case", "kind", "store"), RUNS, indirect=["store"])
def test_vector(case: dict[str, Any], kind: type[Limiter] | type[AsyncLimiter], store: str) -> None:
    asyncio.run(vectors.run(case, kind, store))
