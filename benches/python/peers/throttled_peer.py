"""throttled-py."""

from __future__ import annotations

from typing import Any

import throttled
from throttled.rate_limiter import per_hour, per_min, per_sec

from . import HIGH

QUOTAS = {
    "fixed": ("fixed_window", per_hour(HIGH, burst=HIGH)),
    "hour": ("fixed_window", per_hour(1_000)),
    "gcra": ("gcra", per_hour(HIGH, burst=HIGH)),
    "gcra 100/s": ("gcra", per_sec(100, burst=200)),
    "counter": ("sliding_window", per_min(1_000)),
    "token": ("token_bucket", per_min(1_000, burst=1_000)),
    "denied": ("fixed_window", per_hour(5)),
}


def check(url: str, kind: str) -> Any:
    using, quota = QUOTAS[kind]
    if url == "memory://":
        # Its own bound is 1,024 keys.
        store: Any = throttled.MemoryStore(options={"MAX_SIZE": 10_000_000})
    else:
        store = throttled.RedisStore(server=url)
    return throttled.Throttled(using=using, quota=quota, store=store).limit


async def async_check(url: str, kind: str) -> Any:
    import throttled.asyncio

    from .redis_py_peer import CONNECTIONS

    using, quota = QUOTAS[kind]
    store = throttled.asyncio.RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": CONNECTIONS})
    return throttled.asyncio.Throttled(using=using, quota=quota, store=store).limit
