"""limits."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from limits import parse

from . import FRESH, HIGH

ITEMS = {
    "fixed": f"{HIGH}/hour",
    "hour": "1000/hour",
    "log": "1000/minute",
    "counter": "1000/minute",
    "denied": "5/hour",
}
STRATEGIES = {
    "fixed": "FixedWindowRateLimiter",
    "hour": "FixedWindowRateLimiter",
    "log": "MovingWindowRateLimiter",
    "counter": "SlidingWindowCounterRateLimiter",
    "denied": "FixedWindowRateLimiter",
}


def check(url: str, kind: str) -> Any:
    from limits import storage, strategies

    prefix: Any = {"key_prefix": f"{kind}{os.getpid()}"} if kind in FRESH and url != "memory://" else {}
    limiter = getattr(strategies, STRATEGIES[kind])(storage.storage_from_string(url, **prefix))
    return partial(limiter.hit, parse(ITEMS[kind]))


async def async_check(url: str, kind: str) -> Any:
    return partial(_strategy(url, STRATEGIES[kind]).hit, parse(ITEMS[kind]))


async def async_checks(url: str, limits: list[tuple[str, int]]) -> list[Any]:
    strategy = _strategy(url, STRATEGIES["fixed"])
    return [partial(strategy.hit, parse(f"{count}/minute")) for _, count in limits]


def _strategy(url: str, name: str) -> Any:
    from limits.aio import storage, strategies

    from .redis_py_peer import CONNECTIONS

    # Its default client, coredis, is slower.
    redis = storage.RedisStorage("async+" + url, implementation="redispy", **CONNECTIONS)
    return getattr(strategies, name)(redis)
