"""What a call takes: a number, or numbers by the names of units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ._shown import shortened, shown
from .errors import CostError

# The name of the number of limits that name no unit.
COST = "cost"
_LIMIT = 2**53


class CostByPolicy:
    """A function of a request whose cost has the units that a policy counts."""

    def units_of(self, counted: Collection[str]) -> tuple[str, ...]:
        """The units of its costs, of a policy that counts these."""
        raise NotImplementedError

    def counts(self, request: Any, counted: Collection[str]) -> None:
        """The policy of a request counts these. It is called before the cost is asked for."""
        raise NotImplementedError


def checked_units(given: Mapping[Any, Any], what: str) -> dict[str, int]:
    """Numbers by the names of units, in lower case: names ignore case. It raises for what is no number of units."""
    units: dict[str, int] = {}
    for name, number in given.items():
        if not isinstance(name, str):
            raise CostError(f"{what} names the unit {shown(name)}: the name of a unit is text (str)")
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number < _LIMIT:
            raise CostError(f"{what} {shown(number)} {shortened(name)}: it must be a whole number from 0 to 2^53 - 1")
        if name.lower() in units:
            raise CostError(f"{what} numbers that name {shortened(name.lower())} twice: names ignore case, so give one")
        units[name.lower()] = number
    return units


def is_counted(name: str, counted: Collection[str]) -> bool:
    """Whether the name is one of those that a policy counts."""
    return name.lower() in counted


def uncounted(cost: Any, counted: Collection[str]) -> str | None:
    """What is wrong with numbers by units of which none of some policies counts one."""
    if not isinstance(cost, Mapping):
        return None
    wrong = next((name for name in cost if not is_counted(name, counted)), None)
    if wrong is None:
        return None
    return f"cost names {shown(wrong)}, which no policy of the limit counts: they count {', '.join(sorted(counted))}"


def share_of(cost: Any, counted: Collection[str]) -> Any:
    """The cost of one of several policies that share it: of numbers by units those that it counts, else 1."""
    if not isinstance(cost, Mapping):
        return cost
    share = {name: number for name, number in cost.items() if is_counted(name, counted)}
    # A number, which is asked faster. 0 is none: it takes nothing.
    return share[COST] if share.keys() == {COST} and share[COST] else share or 1
