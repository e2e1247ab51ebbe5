"""The keyword options of both limiters. The compiled module and the web layers refer to them here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from ._shown import shown

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ._tidegate import ManualClock, StoreChange

    # The names of a limiter's policies. Covariant, so that a function of a Limiter takes one with known names.
    Name = TypeVar("Name", bound=str, default=str, covariant=True)


class PolicyOptions(TypedDict, total=False):
    """The options of a policy."""

    # options: policy
    # The answer to a check when the store fails. It overrides the choice of the limiter.
    on_store_error: str | None
    # Evaluate and count the policy, but never deny a call. Default: False.
    shadow: bool
    # The time for which a key stays denied after a denial. With several times, each new block takes the next, and the
    # last repeats.
    block_for: float | str | timedelta | Sequence[float | str | timedelta] | None
    # The time after the end of a block until the next block takes the first time of `block_for` again. Without it, a
    # day.
    forgive: float | str | timedelta | None
    # Charge denied checks too, so that a caller that keeps trying stays denied. Default: False.
    count_denied: bool
    # The number of newest attempts to remember with their metadata. With 0, nothing is remembered. Default: 0.
    journal: int
    # The units that a process takes in advance and spends without the network: a number, or a part such as `5%`.
    lease: str | int | None
    # The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`.
    priorities: Mapping[str, str] | None
    # The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold.
    max_hold: float | str | timedelta | None
    # Other limits for single keys, by the key: a notation, or `none` for a key without limits.
    overrides: Mapping[str, Any] | None
    # options end


class LimiterSettings(TypedDict, total=False):
    """The options of a limiter, except its policies."""

    # options: settings
    # The beginning of every key in Redis. Give each application another one. Default: `tg`.
    prefix: str
    # A secret of at least 16 bytes for the names of Redis keys. With it, no one can find out from a copy of the data if
    # a guessed key, such as an address, was used. All limiters that share limits need the same secret.
    key_secret: str | bytes | None
    # The longest time that a call may wait for the store. Default: 0.25 seconds.
    timeout: float | timedelta
    # The answer to a check when the store fails: `raise`, `open`, `closed` or `local`. Default: `local`.
    on_store_error: str
    # The longest time for which a denial is repeated without a call to the store. 0 turns this off. Default: 1.0
    # seconds.
    deny_cache: float | timedelta
    # The most callers that may wait in `acquire` or for a hold. A further call is denied at once. Default: 10,000.
    max_waiting: int
    # The most callers that may wait for one policy and key. Default: 1,000.
    max_waiting_per_key: int
    # A function that Tidegate calls once when a store is lost or refuses calls, and once when it is back. It runs on a
    # separate thread after the log line, one change after the other, so it may block. The logger "tidegate" gets its
    # exceptions.
    on_change: Callable[[StoreChange], object] | None
    # A clock for tests. Its time replaces the time of the store.
    clock: ManualClock | None
    # Log each refusal as a warning with the policy, the key, the limit that refused, the wait and the source of the
    # answer. There are at most ten lines a second, and the next line counts the refusals in between. Default: False.
    log_refusals: bool
    # options end


class LimiterOptions(LimiterSettings, total=False):
    """The options of a limiter. A limiter of a policy file has the same options."""

    # options: policies
    # The policies by name: a notation, a Policy, or limits with options as in a policy file. A reload of the file keeps
    # them.
    policies: Mapping[str, Any] | None
    # options end


def as_json(policies: Mapping[str, Any]) -> str:
    """Turns policies that were given as dicts into JSON, as in a policy file."""
    return json.dumps(policies, default=_seconds)


def _seconds(given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    raise TypeError(f"a policy must have texts, numbers, lists and dicts, not {shown(given)}")
