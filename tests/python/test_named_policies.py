"""A policy that is made of a notation at run time and has its own name, such as one from a database."""

from __future__ import annotations

import json

import pytest

from tidegate import Limiter, Policy, PolicyError


def test_its_name_and_not_its_notation_is_what_counts(store: str, prefix: str) -> None:
    with Limiter(store, prefix=prefix, timeout=20.0) as limiter:

        def check(notation: str, name: str = "customer") -> tuple[bool, int]:
            decision = limiter.check(Policy(notation, name=name), "alice")
            assert decision.policy == name
            return decision.allowed, decision.remaining

        # The used units stay used, and each call is decided by its own numbers.
        assert check("fixed-window 2/hour") == (True, 1)
        assert check("fixed-window 2/hour") == (True, 0)
        assert check("fixed-window 2/hour") == (False, 0)
        assert check("fixed-window 5/hour") == (True, 2)
        assert check("fixed-window 2/hour") == (False, 0)
        assert check("fixed-window 5/hour") == (True, 1)
        # Another period is another limit, and another name another policy.
        assert check("fixed-window 2/day") == (True, 1)
        assert check("fixed-window 2/hour", "visitor") == (True, 1)
        # The notation without a name is another policy.
        assert limiter.check("fixed-window 5/hour", "alice").remaining == 4
        assert {"customer", "visitor"} <= set(limiter.stats()["policies"])
        assert limiter.stats()["policies"]["customer"]["denied"] == 2


def test_a_denial_of_other_numbers_is_not_repeated(redis_url: str, prefix: str) -> None:
    with Limiter(redis_url, prefix=prefix, deny_cache=60.0, timeout=20.0) as limiter:
        few, many = (Policy(f"fixed-window {count}/hour", name="customer") for count in (1, 10))
        assert [bool(limiter.check(few, "alice")) for _ in range(3)] == [True, False, False]
        assert limiter.check(many, "alice").remaining == 8
        assert not limiter.check(few, "alice")


def test_the_limiters_own_policy_of_that_name_shares_the_usage(store: str, prefix: str) -> None:
    with Limiter(store, policies={"customer": "fixed-window 5/hour"}, prefix=prefix, timeout=20.0) as limiter:
        assert limiter.check(Policy("fixed-window 9/hour", name="customer"), "alice").remaining == 8
        assert limiter.check("customer", "alice").remaining == 3


def test_a_row_is_a_notation_or_an_error_that_says_what_is_wrong() -> None:
    for row in ("20/minute; 5/3s", "concurrency 8"):
        assert str(Policy(row, name="row")) == str(Policy(row))
        assert json.dumps(repr(Policy(row, name="row")))
    with pytest.raises(PolicyError):
        Policy("20 a minute", name="row")
    with pytest.raises(PolicyError):
        Policy("20/minute", name="")
