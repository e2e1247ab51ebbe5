"""Functions that users give as options. Each is called with as many arguments as it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from .._shown import shown
from ..errors import ConfigError

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Any) -> list[inspect.Parameter] | None:
    """Returns the parameters of a function, or None if they are not known."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None


def with_arity(function: Any, arity: int, option: str) -> Callable[..., Any]:
    """Returns a function of exactly `arity` arguments. A function that requires fewer gets the last one, or none."""
    if not callable(function):
        raise ConfigError(f"{option} must be a function of the request, not {shown(function)}")
    parameters = parameters_of(function)
    if parameters is None:
        return function  # type: ignore[no-any-return]
    required = [one for one in parameters if one.default is one.empty]
    if any(one.kind is one.VAR_POSITIONAL for one in required):
        return function  # type: ignore[no-any-return]
    positional = [one for one in required if one.kind in POSITIONAL]
    if any(one.kind is one.KEYWORD_ONLY for one in required) or len(positional) > arity:
        raise ConfigError(
            f"{option} {name_of(function)} must take {arity} argument{'s' * (arity > 1)}, and takes {len(required)}"
        )
    if len(positional) == arity:
        return function  # type: ignore[no-any-return]
    # A function with only optional arguments gets one as well.
    if positional or any(one.kind in POSITIONAL for one in parameters):
        return function if arity == 1 else lambda *given: function(given[-1])
    return lambda *_: function()


def is_async(given: object) -> bool:
    """True if it is a function with a result to wait for."""
    return inspect.iscoroutinefunction(given) or (
        callable(given) and not inspect.isclass(given) and inspect.iscoroutinefunction(type(given).__call__)
    )


def name_of(function: object) -> str:
    """Returns the name of a function, for messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def qualified_name(view: Any) -> str:
    """Returns the name of a view, a class or a function with its module. It is the same in every process."""
    while isinstance(view, functools.partial):
        view = view.func
    named = view if hasattr(view, "__qualname__") else type(view)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def verb_of(view_class: Any, method: str) -> str:
    """Returns the name of the method of a class that serves an HTTP method. That of GET also serves HEAD."""
    name = method.lower()
    return "get" if name == "head" and not hasattr(view_class, name) else name


# The most decorators around each other that are searched.
MAX_DEPTH = 8
# A wrapper has such a parameter, because it passes on arguments that it does not know.
_PASSES_ON = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def with_wrapped(view: Any, follow: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """Returns the view and the functions that it wraps, from the outside in, as long as `follow` returns true."""
    seen: set[int] = set()
    layer = [view]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in layer:
            if id(one) not in seen and follow(one):
                seen.add(id(one))
                yield one
                inner.extend(_directly_wrapped(one))
        layer = inner


def _directly_wrapped(view: Any) -> Iterator[Any]:
    wrapped = getattr(view, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    if isinstance(view, functools.partial):
        yield view.func
    elif inspect.ismethod(view):
        yield view.__func__
        yield view.__self__
    elif inspect.isfunction(view):
        if view.__code__.co_flags & _PASSES_ON:
            yield from _closed_over(view)
    elif not inspect.isclass(view) and callable(view):
        yield from filter(_is_wrappable, getattr(view, "__dict__", {}).values())
        yield type(view).__call__


def _closed_over(function: Any) -> Iterator[Any]:
    """Returns the callables in the closure of a wrapper. The function that a decorator calls is among them."""
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
        if _is_wrappable(content):
            yield content


def _is_wrappable(content: Any) -> bool:
    return callable(content) and not inspect.isclass(content)
