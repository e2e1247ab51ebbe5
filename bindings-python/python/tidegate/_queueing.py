"""Policies that say when to go, for callers that wait by themselves."""

from __future__ import annotations

from ._tidegate import Policy
from .errors import ConfigError


def holds_units(policy: Policy, why: str) -> bool:
    """Whether a policy has units to hold. Raises for one that queues calls itself; `why` says what waits already."""
    algorithms = [one.algorithm for one in policy.limits]
    if "leaky-bucket" in algorithms:
        raise ConfigError(
            f'the policy "{policy.name}" is a leaky-bucket, which queues calls itself: {why}. For the same pace '
            'write gcra with a burst of 1, as in "gcra 10/s burst 1"'
        )
    return "concurrency" in algorithms
