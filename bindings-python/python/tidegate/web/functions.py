"""Functions that users give as options: each is called with as many arguments as it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .._shown import shown
from ..errors import ConfigError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def with_arity(function: Any, arity: int, option: str) -> Callable[..., Any]:
    """Returns a function of exactly `arity` arguments; one that requires fewer gets the last one, or none."""
    if not callable(function):
        raise ConfigError(f"{option} is a function of the request, not {shown(function)}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have no signature
        return function  # type: ignore[no-any-return]
    required = [one for one in parameters if one.default is one.empty]
    if any(one.kind is one.VAR_POSITIONAL for one in required):
        return function  # type: ignore[no-any-return]
    positional = [one for one in required if one.kind in _POSITIONAL]
    if any(one.kind is one.KEYWORD_ONLY for one in required) or len(positional) > arity:
        raise ConfigError(f"{option} {name_of(function)} takes {len(required)} arguments: it is given {arity}")
    if len(positional) == arity:
        return function  # type: ignore[no-any-return]
    # A function whose arguments are all optional gets one as well.
    if positional or any(one.kind in _POSITIONAL for one in parameters):
        return function if arity == 1 else lambda *given: function(given[-1])
    return lambda *_: function()


def is_async(given: object) -> bool:
    """Whether it is a function that returns something to wait for."""
    return inspect.iscoroutinefunction(given) or (
        callable(given) and not inspect.isclass(given) and inspect.iscoroutinefunction(type(given).__call__)
    )


def name_of(function: object) -> str:
    """The name of a function, for messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
