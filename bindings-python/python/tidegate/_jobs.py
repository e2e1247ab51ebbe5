"""Computes when a refused job asks again."""

from __future__ import annotations

import functools
import math
import random
from typing import TYPE_CHECKING

from ._tidegate import Decision, Limit, Limiter, LimitState, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

# A line has room for the jobs that a limit admits in this time, or in 50 of its periods if they are longer.
_LINE = 7 * 86_400.0
_MOST = 10**12
# How long to wait for a store that is missing.
_STORE_MISSING = 1.0


class JobLength:
    """The typical run time of jobs in this process. The length of holds in other processes is not known."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean: float | None = None

    def add(self, seconds: float) -> None:
        self._mean = seconds if self._mean is None else 0.8 * self._mean + 0.2 * seconds

    @property
    def period(self) -> float:
        """A power of two, so that processes agree on the policy of a line. Before any job has ended: 250 ms."""
        mean = 0.25 if self._mean is None else min(max(self._mean, 0.01), 86_400.0)
        return float(2.0 ** math.floor(math.log2(mean)))


def wait_of(limiter: Limiter, decision: Decision, policy: Policy, came_back: bool, length: JobLength) -> float:
    """The seconds until a refused job asks again.

    A single job waits exactly as long as its Decision asks. If many jobs wait for a key, each gets a different moment:
    they stand in a line, a leaky-bucket in the store with the rate of the limit that refused. Jobs that are refused
    again at their moment stand in a separate line, so that they are not behind all others.
    """
    if decision.unavailable:
        return max(decision.retry_after or 0.0, _STORE_MISSING * random.uniform(1, 2))
    place = _refusing(decision.limits)
    state = decision.limits[place]
    count = state.limit if decision.overridden else policy.limits[place].count
    held = state.algorithm == "concurrency"
    period = length.period if held else state.period
    if state.algorithm == "sliding-window":
        # Units leave the window one granule after the period.
        period += period / ((None if decision.overridden else policy.limits[place].precision) or 20)
    key = f"line:{decision.policy}:{int(came_back)}:{decision.key}"
    line = limiter.check(_line(count, period), key, state.cost)
    delay = line.delay if line else line.reset_after
    if held:
        wait = delay + state.cost * period / count
        return max(wait, _blocked(decision))
    # The used units come back between retry_after and reset_after. They admit the first batch, then the next follows.
    batch = state.limit * period / count
    batches, within = divmod(delay, batch)
    spread = max(0.0, state.reset_after - (state.retry_after or 0.0))
    return max(state.retry_after or 0.0, _blocked(decision)) + batches * batch + spread * within / batch


def _refusing(states: Sequence[LimitState]) -> int:
    """Returns the place of the limit that refuses longest. Concurrency comes last: its wait is not known."""

    def order(place: int) -> tuple[bool, bool, float]:
        state = states[place]
        return state.exceeded, state.algorithm != "concurrency", state.retry_after or 0.0

    return max(range(len(states)), key=order)


def _blocked(decision: Decision) -> float:
    """Returns the rest of a block of the key, or 0. No limit names such a wait."""
    wait = decision.retry_after or 0.0
    return wait if all(wait > (state.retry_after or 0.0) for state in decision.limits) else 0.0


@functools.lru_cache(maxsize=256)
def _line(count: int, period: float) -> Policy:
    room = min(count * max(50, math.ceil(_LINE / period)), _MOST)
    return Policy(Limit("leaky-bucket", count, period, burst=max(room, count)))
