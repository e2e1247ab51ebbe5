"""Medians with their ranges. Ratios are taken within rounds, because the speed of the machine changes between them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .case import RATES


@dataclass(frozen=True)
class Spread:
    """The median of all rounds, and the least and the most of them."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(reference: Sequence[float | None], other: Sequence[float | None], unit: str) -> Spread | None:
    """Returns the reference divided by the other for rates, the inverse for costs. Above 1 the reference is better."""
    pairs = [(one, two) for one, two in zip(reference, other, strict=True) if one and two]
    if not pairs:
        return None
    return spread([one / two if unit in RATES else two / one for one, two in pairs])


def shares(whole: Sequence[float | None], part: Sequence[float | None]) -> Spread | None:
    pairs = [(one, two) for one, two in zip(whole, part, strict=True) if one and two]
    return spread([two / one for one, two in pairs]) if pairs else None


def known(values: Sequence[float | None]) -> list[float]:
    """The values of the rounds that did not fail."""
    return [value for value in values if value is not None]
