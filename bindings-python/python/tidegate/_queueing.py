"""Checks policies for callers that wait by themselves, such as tasks in a queue."""

from __future__ import annotations

from ._tidegate import Policy
from .errors import ConfigError


def holds_units(policy: Policy, why: str) -> bool:
    """True if a policy has units to hold. Raises for a policy that queues calls itself, with `why` as the reason."""
    algorithms = [one.algorithm for one in policy.limits]
    if "leaky-bucket" in algorithms:
        raise ConfigError(
            f'the policy "{policy.name}" is a leaky-bucket, which queues calls itself: {why}. For the same pace '
            'write gcra with a burst of 1, as in "gcra 10/s burst 1"'
        )
    return "concurrency" in algorithms
