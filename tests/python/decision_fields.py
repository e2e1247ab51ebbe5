"""The fields of a Decision, under the names that the vectors and all languages share. Times are whole microseconds."""

from __future__ import annotations

from typing import Any

from tidegate import Decision


def micros(seconds: float | None) -> int | None:
    """Converts seconds, which Python uses, into microseconds."""
    return None if seconds is None else round(seconds * 1e6)


def fields_of(decision: Decision) -> dict[str, Any]:
    """Returns every field of a Decision."""
    return {
        "allowed": decision.allowed,
        "shadow": decision.shadow,
        "abnormal": decision.abnormal,
        "overridden": decision.overridden,
        "learned": decision.learned,
        "policy": decision.policy,
        "key": decision.key,
        "cost": decision.cost,
        "granted": decision.granted,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after": micros(decision.retry_after),
        "next_after": micros(decision.next_after),
        "reset_after": micros(decision.reset_after),
        # Truncated to milliseconds, because a Date of JavaScript has no finer times.
        "reset_at": int(decision.reset_at * 1000 + 0.0005),
        "delay": micros(decision.delay),
        "source": decision.source,
        "unavailable": decision.unavailable,
        "limits": [
            {
                "algorithm": limit.algorithm,
                "unit": limit.unit,
                "cost": limit.cost,
                "limit": limit.limit,
                "period": micros(limit.period),
                "remaining": limit.remaining,
                "over": limit.over,
                "retry_after": micros(limit.retry_after),
                "next_after": micros(limit.next_after),
                "reset_after": micros(limit.reset_after),
                "exceeded": limit.exceeded,
            }
            for limit in decision.limits
        ],
        "decisions": [fields_of(one) for one in decision.decisions],
    }
