"""Calls as services have them: keys that callers share, and many policies.

`spread` sets how callers choose among the `keys`: `own` (no two callers share one), `random`, or `zipf` (the nth key is
asked for 1/n times as often as the first). `policies` is the number of policies, which have the `algorithms` in turn.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

# The number of calls that a caller repeats again and again.
LENGTH = 4_000
# No benchmark uses it up. With this count and those after it, the interval of a bucket has a fraction of a microsecond,
# so a policy that is asked alone costs as much as each of many.
HIGH = 1_000_001


def limits_of(algorithms: str, policies: int) -> list[tuple[str, int]]:
    """The algorithm and the limit per minute of each policy. No two policies are the same."""
    kinds = itertools.cycle(algorithms.split(","))
    return [(kind, HIGH + number) for number, kind in zip(range(policies), kinds, strict=False)]


def calls_of(caller: int, callers: int, spread: str, keys: int, policies: int) -> Iterator[tuple[int, str]]:
    """The policy and the key of each call of a caller, without end."""
    chance = random.Random(caller)
    if spread == "own":
        numbers = [chance.randrange(keys // callers) * callers + caller for _ in range(LENGTH)]
    else:
        weights = [1 / (number + 1) if spread == "zipf" else 1 for number in range(keys)]
        numbers = chance.choices(range(keys), weights, k=LENGTH)
    return itertools.cycle([(chance.randrange(policies), f"user:{number:07}") for number in numbers])
