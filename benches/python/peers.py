"""A check by each contender in Python, blocking: a function of a key. Every peer has the algorithm of its case."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import limits
import limits.storage
import limits.strategies
import pyrate_limiter
import redis
import throttled

import tidegate

Check = Callable[[str], Any]

HIGH = 1_000_000_000
POLICIES: dict[str, Any] = {
    "fixed": f"fixed-window {HIGH}/hour",
    "gcra": f"gcra {HIGH}/hour",
    "log": "sliding-log 1000/minute",
    "denied": "fixed-window 5/hour",
    "no lease": tidegate.Policy("fixed-window 10000000/10s"),
    "lease": tidegate.Policy("fixed-window 10000000/10s", lease="5%"),
}
# What one would write by hand: one counter with its expiry, and the values that a caller needs.
SCRIPT = """
local used = redis.call('INCRBY', KEYS[1], ARGV[2])
if used == tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {used <= tonumber(ARGV[1]) and 1 or 0, used, redis.call('PTTL', KEYS[1])}
"""
SCRIPT_ARGUMENTS = (HIGH, 1, 3_600_000)


def options(kind: str) -> dict[str, Any]:
    # Logs grow from round to round; each process begins with empty ones.
    prefix = {"prefix": f"log{os.getpid()}"} if kind == "log" else {}
    return {"policies": {"api": POLICIES[kind]}, "timeout": 5.0, **prefix}


def tidegate_check(url: str, kind: str) -> Check:
    return partial(tidegate.Limiter(url, **options(kind)).check, "api")


LIMITS_ITEMS = {
    "hour": "1000/hour",
    "fixed": f"{HIGH}/hour",
    "log": "1000/minute",
    "counter": "1000/minute",
    "denied": "5/hour",
}


def limits_item(kind: str) -> limits.RateLimitItem:
    return limits.parse(LIMITS_ITEMS[kind])


LIMITS_STRATEGIES = {
    "fixed": "FixedWindowRateLimiter",
    "hour": "FixedWindowRateLimiter",
    "denied": "FixedWindowRateLimiter",
    "log": "MovingWindowRateLimiter",
    "counter": "SlidingWindowCounterRateLimiter",
}


def limits_check(url: str, kind: str) -> Check:
    prefix = {"key_prefix": f"log{os.getpid()}"} if kind == "log" and url != "memory://" else {}
    storage = limits.storage.storage_from_string(url, **prefix)
    limiter = getattr(limits.strategies, LIMITS_STRATEGIES[kind])(storage)
    return partial(limiter.hit, limits_item(kind))


THROTTLED_QUOTAS = {
    "fixed": throttled.rate_limiter.per_hour(HIGH, burst=HIGH),
    "gcra": throttled.rate_limiter.per_hour(HIGH, burst=HIGH),
    "hour": throttled.rate_limiter.per_hour(1_000),
    "gcra 100/s": throttled.rate_limiter.per_sec(100, burst=200),
    "counter": throttled.rate_limiter.per_min(1_000),
    "token": throttled.rate_limiter.per_min(1_000, burst=1_000),
    "denied": throttled.rate_limiter.per_hour(5),
}
THROTTLED_KINDS = {
    "fixed": "fixed_window",
    "hour": "fixed_window",
    "denied": "fixed_window",
    "gcra": "gcra",
    "gcra 100/s": "gcra",
    "counter": "sliding_window",
    "token": "token_bucket",
}


def throttled_check(url: str, kind: str) -> Check:
    if url == "memory://":
        # Its own bound is 1,024 keys.
        store: Any = throttled.MemoryStore(options={"MAX_SIZE": 10_000_000})
    else:
        store = throttled.RedisStore(server=url)
    using, quota = THROTTLED_KINDS[kind], THROTTLED_QUOTAS[kind]
    limit: Check = throttled.Throttled(using=using, quota=quota, store=store).limit
    return limit


class PyrateBuckets(pyrate_limiter.BucketFactory):
    """A bucket for each key, as the documentation of pyrate-limiter shows it."""

    def __init__(self, url: str, kind: str) -> None:
        self.clock = pyrate_limiter.WallClock()
        self.buckets: dict[str, pyrate_limiter.AbstractBucket] = {}
        self.kind = kind
        self.client = None if url == "memory://" else redis.Redis.from_url(url)

    def wrap_item(self, name: str, weight: int = 1) -> pyrate_limiter.RateItem:
        return pyrate_limiter.RateItem(name, self.clock.now(), weight=weight)

    def get(self, item: pyrate_limiter.RateItem) -> pyrate_limiter.AbstractBucket:
        found = self.buckets.get(item.name)
        if found is None:
            found = self.buckets[item.name] = self.bucket(f"pyrate{os.getpid()}:{item.name}")
        return found

    def bucket(self, name: str) -> pyrate_limiter.AbstractBucket:
        if self.kind.startswith("gcra"):
            if self.kind == "gcra 100/s":
                rates = [pyrate_limiter.Rate(100, pyrate_limiter.Duration.SECOND, burst=200)]
            else:
                rates = [pyrate_limiter.Rate(HIGH, pyrate_limiter.Duration.HOUR)]
            if self.client is None:
                return pyrate_limiter.StateBucket(rates)
            store = pyrate_limiter.RedisStateStore(self.client, name)
            return pyrate_limiter.StateBucket(rates, store=store)
        rates = [pyrate_limiter.Rate(1_000, pyrate_limiter.Duration.MINUTE)]
        if self.client is None:
            return pyrate_limiter.InMemoryBucket(rates)
        bucket: pyrate_limiter.AbstractBucket = pyrate_limiter.RedisBucket.init(rates, self.client, name)
        return bucket


def pyrate_check(url: str, kind: str) -> Check:
    limiter = pyrate_limiter.Limiter(PyrateBuckets(url, kind))
    return lambda key: limiter.try_acquire(key, blocking=False)


def redis_py_check(url: str, kind: str) -> Check:
    assert kind == "fixed"
    client = redis.Redis.from_url(url)
    sha = client.script_load(SCRIPT)
    return lambda key: client.evalsha(sha, 1, "bare:" + key, *SCRIPT_ARGUMENTS)


CHECKS: dict[str, Callable[[str, str], Check]] = {
    "tidegate": tidegate_check,
    "limits": limits_check,
    "throttled-py": throttled_check,
    "pyrate-limiter": pyrate_check,
    "redis-py evalsha": redis_py_check,
}
