"""Compares the figures of two contenders."""

from __future__ import annotations

from typing import Any

from .case import FLOOR, OURS, PEER, PRICES, RATES
from .figures import cost, with_range
from .statistics import Spread, ratios

Results = dict[str, Any]


def contender_of(case: Results, name: str) -> Results:
    found: Results = next(contender for contender in case["contenders"] if contender["name"] == name)
    return found


def ratio_of(case: Results, other: Results) -> Spread | None:
    """Returns the ratio of the case's reference to the other contender. Above 1 the reference is better."""
    reference = contender_of(case, case["reference"])
    return None if other is reference else ratios(reference["rounds"], other["rounds"], case["unit"])


def standing(title: str, case: Results, other: Results) -> tuple[str, str] | None:
    """Returns "ahead" or "level" for a peer, with a sentence for the page, or None if it is behind in every round."""
    ratio = ratio_of(case, other)
    if other["role"] != PEER or contender_of(case, case["reference"])["role"] != OURS or ratio is None:
        return None
    if ratio.least > 1:
        return None
    unit, ours, theirs = case["unit"], case["reference"], other["name"]
    if unit in RATES:
        measure = f"`{ours}` reaches {with_range(ratio, cost)} of its rate"
    else:
        # The inverse ratio of the same rounds: how much more ours costs.
        more = ratios(other["rounds"], contender_of(case, ours)["rounds"], unit)
        assert more is not None
        measure = f"`{ours}` takes {with_range(more, cost)} times its {PRICES[unit]}"
    where = f"{title}, {case['name']}"
    if ratio.most < 1:
        reason = case.get("reason")
        return "ahead", f"{where}: `{theirs}` is ahead. {measure}." + (f" {reason}" if reason else "")
    return "level", f"{where}: no clear difference from `{theirs}`. {measure}."


def standings(parts: dict[str, Results], kind: str) -> list[str]:
    """The sentences of one kind over all parts."""
    found = []
    for part in parts.values():
        for case in part["cases"]:
            for contender in case["contenders"]:
                said = standing(part["title"], case, contender)
                if said is not None and said[0] == kind:
                    found.append(said[1])
    return found


def is_floor(contender: Results) -> bool:
    return bool(contender["role"] == FLOOR)
