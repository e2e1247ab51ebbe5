"""The keyword options of both limiters. The compiled module and the web layers refer to them here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from ._shown import shown

if TYPE_CHECKING:
    from ._tidegate import ManualClock, StoreChange


class LimiterOptions(TypedDict, total=False):
    """The options of a limiter. Those of a policy file's limiter are the same."""

    # Policies by name: a notation, a Policy, or a dict as in a policy file. They stay when a policy file is reloaded.
    policies: Mapping[str, Any] | None
    # What every key in Redis begins with; "tg" by default.
    prefix: str
    # At least 16 secret bytes for the digests in the names of Redis keys; all that share limits need the same ones.
    key_secret: str | bytes | None
    # The longest time that a call may wait for the store, in seconds; 0.25 by default.
    timeout: float | timedelta
    # The answer to a check when the store fails: "raise", "open", "closed" or "local", the default.
    on_store_error: str
    # For how many seconds a denied key may be denied without asking the store; 1.0 by default, 0 is off.
    deny_cache: float | timedelta
    # The most callers that wait in `acquire`, 10,000 by default; beyond it `acquire` returns a denied Decision at once.
    max_waiting: int
    # The most callers that wait for one policy and key; 1,000 by default.
    max_waiting_per_key: int
    # Called once when a store is lost or refuses, and once when it is back, after that was logged: on a thread of its
    # own, one change after the other, so it may block. What it raises is logged to the logger "tidegate".
    on_change: Callable[[StoreChange], object] | None
    # A clock for tests.
    clock: ManualClock | None


def as_json(policies: Mapping[str, Any]) -> str:
    """Policies that are given as dicts, as a policy file has them."""
    return json.dumps(policies, default=_seconds)


def _seconds(given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    raise TypeError(f"a policy holds texts, numbers, lists and dicts, not {shown(given)}")
