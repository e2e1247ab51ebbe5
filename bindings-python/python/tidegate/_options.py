"""The keyword options of both limiters. The compiled module and the web layers refer to them here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from ._shown import shown

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ._tidegate import ManualClock, NearLimit, StoreChange

    # The names of a limiter's policies. Covariant, so that a function of a Limiter takes one with known names.
    Name = TypeVar("Name", bound=str, default=str, covariant=True)


class PolicyOptions(TypedDict, total=False):
    """The options of a policy."""

    # options: policy
    # What a check answers when the store fails; overrides the limiter's choice.
    on_store_error: str | None
    # Evaluate and count, but never deny. Default: False.
    shadow: bool
    # Once denied, the key stays denied this long; of several lengths, each further block has the next, and the last
    # repeats.
    block_for: float | str | timedelta | Sequence[float | str | timedelta] | None
    # With several lengths in `block_for`: a key whose last block ended so long ago begins with the first length again.
    # Without it a day.
    forgive: float | str | timedelta | None
    # Charge denied checks too: a caller that keeps trying stays out. Default: False.
    count_denied: bool
    # Remember that many of the newest attempts with their metadata; 0 is none. Default: 0.
    journal: int
    # Take units in advance and spend them without the network: a number of units, or a part such as `5%`.
    lease: str | int | None
    # Classes of calls, each with the part of every limit that it leaves free, such as `batch: 30%`.
    priorities: Mapping[str, str] | None
    # How old a hold of a `concurrency` limit may become: from then on it is not renewed, and its ttl ends it.
    max_hold: float | str | timedelta | None
    # Other limits for single keys, by the key or by the network of an address: a notation, or `none` for no limit.
    overrides: Mapping[str, Any] | None
    # options end


class LimiterSettings(TypedDict, total=False):
    """The options of a limiter, except its policies."""

    # options: settings
    # What every key in Redis begins with. Default: `tg`.
    prefix: str
    # A secret of at least 16 bytes for the digests in the names of Redis keys, so that a copy of the data does not tell
    # whether a key that was guessed, such as an address, was used. All limiters that share limits need the same one.
    key_secret: str | bytes | None
    # The longest time that a call may wait for the store. Default: 0.25 seconds.
    timeout: float | timedelta
    # What a check answers when the store fails: `raise`, `open`, `closed` or `local`. Default: `local`.
    on_store_error: str
    # The longest time that a denial is repeated without asking the store; 0 turns it off. Default: 1.0 seconds.
    deny_cache: float | timedelta
    # The most callers that wait, in `acquire` or for a hold. Beyond it a call is denied at once. Default: 10,000.
    max_waiting: int
    # The most callers that wait for one policy and key. Default: 1,000.
    max_waiting_per_key: int
    # Called once when a store is lost or refuses, and once when it is back. It is called after that was logged, on a
    # thread of its own, one change after the other, so it may block. What it raises is logged to the logger "tidegate".
    on_change: Callable[[StoreChange], object] | None
    # Called when a key comes near a limit, before it is reached: at most once for each policy, key and window in a
    # process. It is called on a thread of its own, one key after the other, so it may block. An exception in it is
    # logged to the logger "tidegate".
    on_near_limit: Callable[[NearLimit], object] | None
    # The part of a limit from which on it is near, for `on_near_limit`. Default: 0.8.
    near_limit: float
    # How often the policy file is read to find a change, which is then reloaded; 0 never looks. Default: 0.0 seconds.
    watch: float | timedelta
    # A clock for tests, whose time is used instead of the store's.
    clock: ManualClock | None
    # Whether a refusal is logged, as a warning: its policy, its key, the limit that refused, the wait, and what
    # answered. At most ten lines a second; the next line says how many refusals have none. Default: False.
    log_refusals: bool
    # options end


class LimiterOptions(LimiterSettings, total=False):
    """The options of a limiter. A limiter of a policy file has the same options."""

    # options: policies
    # Policies by name: a notation, a Policy, or limits with options as in a policy file. They stay when a policy file
    # is reloaded.
    policies: Mapping[str, Any] | None
    # options end


def as_json(policies: Mapping[str, Any]) -> str:
    """Turns policies that were given as dicts into JSON, as in a policy file."""
    return json.dumps(policies, default=_seconds)


def _seconds(given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    raise TypeError(f"a policy holds texts, numbers, lists and dicts, not {shown(given)}")
