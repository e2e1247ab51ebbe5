"""redis-py with hiredis, as you would write it by hand."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio

from . import HIGH

# One counter with its expiry, and the values that a caller needs.
SCRIPT = """
local used = redis.call('INCRBY', KEYS[1], ARGV[2])
if used == tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {used <= tonumber(ARGV[1]) and 1 or 0, used, redis.call('PTTL', KEYS[1])}
"""
SCRIPT_ARGUMENTS = (HIGH, 1, 3_600_000)
# The default is 100, and more callers at a time are an error.
CONNECTIONS: dict[str, Any] = {"max_connections": 512}


def check(url: str, kind: str) -> Any:
    assert kind == "fixed"
    client = redis.Redis.from_url(url)
    sha = client.script_load(SCRIPT)
    return lambda key: client.evalsha(sha, 1, "bare:" + key, *SCRIPT_ARGUMENTS)


async def async_check(url: str, kind: str) -> Any:
    assert kind == "fixed"
    client = redis.asyncio.Redis.from_url(url, **CONNECTIONS)
    sha = await client.script_load(SCRIPT)
    return lambda key: client.evalsha(sha, 1, "bare:" + key, *SCRIPT_ARGUMENTS)


async def async_checks(url: str, limits: list[tuple[str, int]]) -> list[Any]:
    client = redis.asyncio.Redis.from_url(url, **CONNECTIONS)
    sha = await client.script_load(SCRIPT)

    def check_of(number: int, count: int) -> Any:
        return lambda key: client.evalsha(sha, 1, f"bare:{number}:{key}", count, 1, 60_000)

    return [check_of(number, count) for number, (_, count) in enumerate(limits)]
