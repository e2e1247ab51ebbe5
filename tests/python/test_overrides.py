"""Keys with other limits than their policy."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tidegate import AsyncLimiter, Limit, Limiter, Override, Policy, PolicyError


def test_a_policy_has_keys_with_limits_of_their_own() -> None:
    overrides: dict[str, Any] = {"alice": "5/hour", "org:7": [Limit("gcra", 2, "1s"), "9/day"], "internal": "none"}
    policy = Policy("2/hour", overrides=overrides, name="p")
    assert policy.overrides == {"alice": "5/hour", "org:7": "gcra 2/s; 9/day", "internal": "none"}
    limiter = Limiter(policies={"p": policy, "q": {"limits": "2/hour", "overrides": {"alice": "7/hour"}}})
    assert (limiter.check("p", "alice").limit, limiter.check("q", "alice").limit) == (5, 7)
    assert not limiter.check("p", "bob").overridden
    free = limiter.check("p", "internal", cost=1000)
    assert (free.allowed, free.granted, free.overridden) == (True, 1000, True)


def test_live() -> None:
    limiter = Limiter(policies={"api": "2/hour"})
    limiter.override("api", "alice", "1000/hour", ttl=60)
    limiter.override("api", "bob", Policy("gcra 3/s"), ttl=timedelta(days=1))
    limiter.override("api", "carol", [Limit("gcra", 3, "1s"), "9/day"])
    limiter.override("api", "internal", "none")
    assert limiter.check("api", "alice").limit == 1000
    listed = limiter.overrides("api")
    assert [(one.key, one.limits, one.expires_at is None) for one in listed] == [
        ("alice", "1000/hour", False),
        ("bob", "gcra 3/s", False),
        ("carol", "gcra 3/s; 9/day", True),
        ("internal", "none", True),
    ]
    assert isinstance(listed[0], Override) and listed[0].as_dict()["key"] == "alice"
    limiter.override("api", "alice", None)
    assert limiter.check("api", "alice").limit == 2
    assert len(limiter.overrides("api")) == 3


def test_awaited() -> None:
    async def run() -> None:
        limiter = AsyncLimiter(policies={"api": "2/hour"})
        await limiter.override("api", "alice", "1000/hour", ttl=60)
        assert (await limiter.check("api", "alice")).overridden
        assert [one.key for one in await limiter.overrides("api")] == ["alice"]
        await limiter.override("api", "alice", None)
        assert await limiter.overrides("api") == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "wrong", ["5/fortnight", [], 5, {}, "concurrency 3", Policy(Limit("token-bucket", 5, "1s", initial=0))]
)
def test_what_is_no_override(wrong: Any) -> None:
    limiter = Limiter(policies={"api": "2/hour"})
    with pytest.raises((PolicyError, TypeError)):
        limiter.override("api", "alice", wrong)
    with pytest.raises((PolicyError, TypeError)):
        Policy("5/s", overrides=[("alice", "5/s")])  # type: ignore[arg-type]
