"""What a settle function returns, as the actual cost of each charge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._shown import shortened, shown
from ..errors import ConfigError, CostError
from .charge import Charge


def settlements(charges: Sequence[Charge], given: Any) -> list[tuple[Charge, int]]:
    """The charges of one limit that are settled, each with its cost. It raises before the first of them is."""
    entries = charges[0].entries
    costs: list[tuple[Charge, Any]]
    if isinstance(given, Mapping):
        names = [entry.resolved.name for entry in entries]
        for name in given:
            if name not in names:
                known = ", ".join(map(shortened, names))
                raise ConfigError(f"settle returned a cost of {shown(name)}, and the policies of the limit are {known}")
        costs = [(charge, given.get(charge.entry.resolved.name)) for charge in charges]
    elif isinstance(given, (list, tuple)):
        if len(given) != len(entries):
            raise ConfigError(f"settle returned {len(given)} costs, and the limit has {len(entries)} policies")
        # One whose cost was 0 has no charge.
        costs = [(charge, given[entries.index(charge.entry)]) for charge in charges]
    else:
        # Where a policy names a cost, one that names none counts requests.
        costs = [(charge, given) for charge in charges if charge.entry.names_cost]
        if not any(entry.names_cost for entry in entries):
            costs = [(charge, given) for charge in charges]
    return [(charge, _checked(cost)) for charge, cost in costs if cost is not None]


def _checked(cost: Any) -> int:
    if isinstance(cost, int) and not isinstance(cost, bool) and cost >= 0:
        return cost
    raise CostError(f"settle returned {shown(cost)}: an actual cost is a whole number from 0 on")
