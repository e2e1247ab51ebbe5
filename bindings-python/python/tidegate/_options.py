"""The keyword options of both limiters. The compiled module and the web layers refer to them here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ._tidegate import ManualClock


class FileLimiterOptions(TypedDict, total=False):
    """The options of a limiter that a policy file describes."""

    # What every key in Redis begins with; "tg" by default.
    prefix: str
    # The longest time that a call may wait for the store, in seconds; 0.25 by default.
    timeout: float
    # The answer to a check when the store fails: "raise", "open", "closed" or "local", the default.
    on_store_error: str
    # For how many seconds a denied key may be denied without asking the store; 1.0 by default, 0 is off.
    deny_cache: float
    # A clock for tests.
    clock: ManualClock | None


class LimiterOptions(FileLimiterOptions, total=False):
    """The options of a limiter."""

    # Policies by name: a notation, a Policy, or a dict as in a policy file.
    policies: Mapping[str, Any] | None
