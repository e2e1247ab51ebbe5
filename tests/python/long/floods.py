"""Floods of keys and of notations, each in a process that may use little memory: `floods.py NAME STORE`."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable

MEGABYTES = 1_000_000
LONG = 60_000
# Several floods use the same keys on one server, so each has its own prefix.
PREFIX = f"flood{os.getpid()}"


def long_key(number: int) -> str:
    return f"{number:0{LONG}}"


def denied_keys(store: str, count: int) -> None:
    from tidegate import Limiter

    with Limiter(store, policies={"api": "1/hour"}, timeout=5, prefix=PREFIX) as limiter:
        for number in range(count):
            key = long_key(number)
            assert limiter.check("api", key)
            denied = limiter.check("api", key)
            assert not denied and denied.key == key
        assert not limiter.check("api", long_key(count // 2)), "none was forgotten"


def denied_keys_asyncio(store: str, count: int) -> None:
    from tidegate import AsyncLimiter

    async def main() -> None:
        async with AsyncLimiter(store, policies={"api": "1/hour"}, timeout=5, prefix=PREFIX) as limiter:
            for number in range(count):
                key = long_key(number)
                assert await limiter.check("api", key)
                assert not await limiter.check("api", key)

    asyncio.run(main())


def notations(store: str, count: int) -> None:
    from tidegate import Limiter

    with Limiter(store, timeout=5, prefix=PREFIX) as limiter:
        for number in range(count):
            notation = " " * LONG + f"1/hour;{number + 1}/day"
            assert limiter.check(notation, f"a{number}")
            assert not limiter.check(notation, f"a{number}")


def policies(store: str, count: int) -> None:
    """Makes a Policy for each request."""
    from tidegate import Limiter, Policy

    with Limiter(store, timeout=5, prefix=PREFIX) as limiter:
        for number in range(count):
            policy = Policy(";".join(f"{number + 1}/{period} h" for period in range(1, 16)))
            assert limiter.check(policy, "k")


def limits_storage(store: str, count: int) -> None:
    from limits import RateLimitItemPerMinute
    from limits.storage import storage_from_string
    from limits.strategies import FixedWindowRateLimiter

    import tidegate.limits  # noqa: F401, it registers the storages

    strategy = FixedWindowRateLimiter(storage_from_string("tidegate+" + store))
    item = RateLimitItemPerMinute(1)
    for number in range(count):
        assert strategy.hit(item, long_key(number))
        assert not strategy.hit(item, long_key(number))


FLOODS: dict[str, tuple[int, Callable[[str], None]]] = {
    "denied_keys": (250, lambda store: denied_keys(store, 12_000)),
    "denied_keys_asyncio": (250, lambda store: denied_keys_asyncio(store, 12_000)),
    "notations": (150, lambda store: notations(store, 3_000)),
    "policies": (100, lambda store: policies(store, 20_000)),
    "limits_storage": (300, lambda store: limits_storage(store, 12_000)),
}


def address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    import tidegate  # noqa: F401, what it takes to be loaded is no part of a flood

    megabytes, flood = FLOODS[sys.argv[1]]
    most = address_space() + megabytes * MEGABYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    flood(sys.argv[2])
    print("bounded")
