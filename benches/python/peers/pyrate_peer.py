"""pyrate-limiter."""

from __future__ import annotations

import os
from typing import Any

from pyrate_limiter import (
    AbstractBucket,
    BucketFactory,
    Duration,
    InMemoryBucket,
    Limiter,
    Rate,
    RateItem,
    StateBucket,
    WallClock,
)

from . import HIGH

RATES = {
    "gcra": Rate(HIGH, Duration.HOUR),
    "gcra 100/s": Rate(100, Duration.SECOND, burst=200),
    "log": Rate(1_000, Duration.MINUTE),
}


class KeyBuckets(BucketFactory):
    """A bucket for each key, as in the documentation of pyrate-limiter: a log, or a state for GCRA."""

    def __init__(self, url: str, kind: str) -> None:
        self.clock = WallClock()
        self.buckets: dict[str, AbstractBucket] = {}
        self.rates, self.is_log = [RATES[kind]], kind == "log"
        self.client: Any = None
        if url != "memory://":
            import redis

            self.client = redis.Redis.from_url(url)

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        found = self.buckets.get(item.name)
        if found is None:
            found = self.buckets[item.name] = self.bucket(f"pyrate{os.getpid()}:{item.name}")
        return found

    def bucket(self, name: str) -> AbstractBucket:
        if self.client is None:
            return InMemoryBucket(self.rates) if self.is_log else StateBucket(self.rates)
        from pyrate_limiter import RedisBucket, RedisStateStore

        if self.is_log:
            bucket: AbstractBucket = RedisBucket.init(self.rates, self.client, name)
            return bucket
        return StateBucket(self.rates, store=RedisStateStore(self.client, name))


def check(url: str, kind: str) -> Any:
    limiter = Limiter(KeyBuckets(url, kind))
    return lambda key: limiter.try_acquire(key, blocking=False)
