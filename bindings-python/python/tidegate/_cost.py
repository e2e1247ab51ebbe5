"""The cost of a call: a number, or numbers by the names of units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ._shown import shortened, shown
from .errors import CostError

# The name of the number for limits that name no unit.
COST = "cost"
_LIMIT = 2**53


class CostByPolicy:
    """A function of a request that returns a cost in the units of its policy."""

    def units_of(self, counted: Collection[str]) -> tuple[str, ...]:
        """Returns the units of its costs under a policy that counts these."""
        raise NotImplementedError

    def counts(self, request: Any, counted: Collection[str]) -> None:
        """Takes the units that the policy of a request counts. The call comes before the one for the cost."""
        raise NotImplementedError


def checked_units(given: Mapping[Any, Any], what: str) -> dict[str, int]:
    """Returns the numbers with names in lower case, as names ignore case. Raises CostError for a wrong cost."""
    units: dict[str, int] = {}
    for name, number in given.items():
        if not isinstance(name, str):
            raise CostError(f"{what} names the unit {shown(name)}: the name of a unit must be text (str)")
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number < _LIMIT:
            raise CostError(f"{what} {shown(number)} {shortened(name)}: it must be a whole number from 0 to 2^53 - 1")
        if name.lower() in units:
            raise CostError(f"{what} numbers that name {shortened(name.lower())} twice: names ignore case, so give one")
        units[name.lower()] = number
    return units


def is_counted(name: str, counted: Collection[str]) -> bool:
    """True if a policy counts the name."""
    return name.lower() in counted


def uncounted(cost: Any, counted: Collection[str]) -> str | None:
    """Returns the error text for a cost with a unit that no policy counts, or None."""
    if not isinstance(cost, Mapping):
        return None
    wrong = next((name for name in cost if not is_counted(name, counted)), None)
    if wrong is None:
        return None
    return f"cost names {shown(wrong)}, which no policy of the limit counts: they count {', '.join(sorted(counted))}"


def share_of(cost: Any, counted: Collection[str]) -> Any:
    """Returns the part of a shared cost for one policy: the units that it counts, or 1. A number stays as it is."""
    if not isinstance(cost, Mapping):
        return cost
    share = {name: number for name, number in cost.items() if is_counted(name, counted)}
    # A plain number is checked faster. A 0 stays a dict, which takes nothing.
    return share[COST] if share.keys() == {COST} and share[COST] else share or 1
