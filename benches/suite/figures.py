"""Figures as text."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

from .case import RATES
from .statistics import Spread


def rate(value: float) -> str:
    """Rounds to three digits, because a measurement is not more exact than that."""
    digits = max(0, floor(log10(value)) - 2) if value >= 1 else 0
    return f"{round(value, -digits):,.0f}"


def cost(value: float) -> str:
    if 0 < value < 0.1:
        return f"{value:.3f}" if value >= 0.001 else "< 0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def of_unit(unit: str) -> Callable[[float], str]:
    return rate if unit in RATES else cost


def with_range(one: Spread, shown: Callable[[float], str]) -> str:
    if one.least == one.most:
        return shown(one.median)
    return f"{shown(one.median)} ({shown(one.least)} to {shown(one.most)})"


def better(unit: str) -> str:
    return "more is better" if unit in RATES else "less is better"
