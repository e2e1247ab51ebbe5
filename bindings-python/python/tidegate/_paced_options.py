"""The options of outgoing calls, which all clients have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

from ._shown import shown
from ._tidegate import Decision, Policy
from .errors import ConfigError
from .outgoing import SettleReader

# A policy, or a function that makes it from a request. With None, only the limits that responses announce count.
PolicyOption: TypeAlias = "str | Policy | Callable[[Any], str | Policy | None] | None"


class PacedOptions(TypedDict, total=False):
    """The options of outgoing calls, the same for each client. Functions get the request."""

    # The key: a text, or a function of the request. Default: its origin, such as `https://api.example.com`. A redirect
    # to another origin has that origin as its key, unless the function returns another key than before.
    key: str | Callable[[Any], str] | None
    # The units that a request takes: a number, numbers by the names of units, or a function of the request. Default: 1.
    cost: int | Mapping[str, int] | Callable[[Any], int | Mapping[str, int]] | None
    # A function of the response, called before its body is read. It returns the actual cost of the request, a
    # `SettleReader` that reads the body while the caller does, or None to leave the charge as it is.
    settle: Callable[[Any], int | Mapping[str, int] | SettleReader | None] | None
    # The longest time that a request waits, for its turns and between its attempts. None waits as long as it takes.
    # Default: 30 seconds.
    timeout: float | timedelta | None
    # How often a request is sent again after a 429 or 503 that announces a wait. Default: 0.
    retries: int
    # True to learn the limits that responses announce. Default: True.
    learn: bool
    # How much the travel time to the service may differ between requests. The windows of the policy become longer by
    # twice that. Default: 0.05 seconds.
    margin: float | timedelta
    # A class of the policy's `priorities`, or a function of the request that returns one, or None.
    priority: str | Callable[[Any], str | None] | None
    # Called before a request waits, with the Decision and the seconds.
    on_wait: Callable[[Decision, float], object] | None
    # The text before the key. Default: `out:`.
    prefix: str
    # The longest announced wait that is believed. Default: 3600 seconds.
    max_learned_wait: float | timedelta
    # True to turn a refusal into a response with 429 and `x-should-retry: false`. Otherwise RateLimited is raised.
    # Default: False.
    respond: bool


OPTIONS = tuple(PacedOptions.__annotations__)


def checked_function(given: Any, what: str) -> Any:
    if given is not None and not callable(given):
        raise TypeError(f"{what}, not {shown(given)}")
    return given


def checked_flag(given: PacedOptions, name: Any, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return value


def checked_seconds(given: object, name: str, what: str) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise ConfigError(f"{name} is {shown(seconds)}: it must be {what}, 0 or more")
    return float(seconds)
