"""The shared vectors give the same answers as in every other language, over every store and through both limiters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import vectors
from tidegate import AsyncLimiter, Limiter

CASES = vectors.cases()


def test_there_are_vectors() -> None:
    assert len(CASES) > 100


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter], ids=["sync", "async"])
@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_vector(case: dict[str, Any], kind: type[Limiter] | type[AsyncLimiter], store: str) -> None:
    if kind is Limiter and vectors.cancels(case):
        pytest.skip("a thread that waits cannot be cancelled")
    asyncio.run(vectors.run(case, kind, store))
