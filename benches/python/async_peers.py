"""A check by each contender in Python, awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import limits.aio.storage
import limits.aio.strategies
import redis.asyncio
import throttled
import throttled.asyncio
from peers import SCRIPT, SCRIPT_ARGUMENTS, THROTTLED_KINDS, THROTTLED_QUOTAS, Check, limits_item, options

import tidegate

# Their own default is 100, and more callers at a time are an error then.
CONNECTIONS: dict[str, Any] = {"max_connections": 512}


async def tidegate_check(url: str, kind: str) -> Check:
    return partial(tidegate.AsyncLimiter(url, **options(kind)).check, "api")


async def limits_check(url: str, kind: str) -> Check:
    # Its default client, coredis, is slower.
    storage = limits.aio.storage.RedisStorage("async+" + url, implementation="redispy", **CONNECTIONS)
    return partial(limits.aio.strategies.FixedWindowRateLimiter(storage).hit, limits_item(kind))


async def throttled_check(url: str, kind: str) -> Check:
    store = throttled.asyncio.RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": CONNECTIONS})
    using, quota = THROTTLED_KINDS[kind], THROTTLED_QUOTAS[kind]
    return cast(Check, throttled.asyncio.Throttled(using=using, quota=quota, store=store).limit)


async def redis_py_check(url: str, kind: str) -> Check:
    assert kind == "fixed"
    client = redis.asyncio.Redis.from_url(url, **CONNECTIONS)
    sha = await client.script_load(SCRIPT)
    return lambda key: client.evalsha(sha, 1, "bare:" + key, *SCRIPT_ARGUMENTS)


CHECKS: dict[str, Callable[[str, str], Awaitable[Any]]] = {
    "tidegate": tidegate_check,
    "limits.aio": limits_check,
    "throttled-py asyncio": throttled_check,
    "redis-py asyncio evalsha": redis_py_check,
}
