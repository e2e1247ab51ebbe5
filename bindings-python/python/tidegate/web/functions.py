"""Functions that users give as options: called with as many arguments as they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError


def adapted(function: Any, most: int, option: str) -> Callable[..., Any]:
    """The function with exactly `most` arguments; one that wants fewer gets the last, or none."""
    if not callable(function):
        raise ConfigError(f"{option} is a function of the request, not {function!r}")
    try:
        kinds = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    except (TypeError, ValueError):  # built-in functions do not always say
        return function  # type: ignore[no-any-return]
    if any(one.kind is one.VAR_POSITIONAL for one in kinds):
        return function  # type: ignore[no-any-return]
    wanted = [one for one in kinds if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.KEYWORD_ONLY for one in kinds) or len(wanted) > most:
        raise ConfigError(f"{option} {name_of(function)} takes {len(kinds)} arguments: it is given {most}")
    if len(wanted) == most:
        return function  # type: ignore[no-any-return]
    if not wanted:
        # Whoever can take the request though it need not, takes it.
        if any(
            one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            for one in inspect.signature(function).parameters.values()
        ):
            return function if most == 1 else lambda *given: function(given[-1])
        return lambda *_: function()
    return lambda *given: function(given[-1])


def name_of(function: object) -> str:
    """What a function is called, for messages."""
    return str(getattr(function, "__qualname__", repr(function)))
