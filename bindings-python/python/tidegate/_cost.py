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
