"""Tidegate."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import tidegate

from . import FRESH, KINDS


def _options(kind: str) -> dict[str, Any]:
    policy = tidegate.Policy(KINDS[kind], lease="5%") if kind == "lease" else KINDS[kind]
    prefix = {"prefix": f"{kind}{os.getpid()}"} if kind in FRESH else {}
    return {"policies": {"api": policy}, "timeout": 5.0, **prefix}


def check(url: str, kind: str) -> Any:
    return partial(tidegate.Limiter(url, **_options(kind)).check, "api")


async def async_check(url: str, kind: str) -> Any:
    return partial(tidegate.AsyncLimiter(url, **_options(kind)).check, "api")


async def async_checks(url: str, limits: list[tuple[str, int]]) -> list[Any]:
    # A key that another contender has counted by another algorithm costs more, so the algorithm is a part of the name.
    policies = {f"{algorithm}-{count}": f"{algorithm} {count}/minute" for algorithm, count in limits}
    limiter = tidegate.AsyncLimiter(url, policies=policies, timeout=5.0)
    return [partial(limiter.check, name) for name in policies]
