"""The error of a call that cannot succeed, however long it waits."""

from __future__ import annotations

from ._shown import shortened
from ._tidegate import Decision
from .errors import CostError


def never_fits(decision: Decision) -> CostError | None:
    """Returns the error of a call that its policy never admits, because it costs more than a limit ever has.

    Returns None for any other Decision, also if the limit admits nothing at all.
    """
    if decision.allowed:
        return None
    for state in decision.limits:
        if not state.exceeded or state.retry_after is not None or state.limit == 0:
            continue
        unit = state.unit or "units"
        most = f"its limit has at most {state.limit} at once"
        if state.cost <= state.limit:
            most += ", and the class of the call leaves a part of it free"
        return CostError(
            f"{shortened(decision.policy)} never admits a call of {state.cost} {unit}: {most}. "
            "Make the call smaller (for a call of an LLM, shorten the input, or allow fewer tokens in the answer), or "
            "raise the limit"
        )
    return None
