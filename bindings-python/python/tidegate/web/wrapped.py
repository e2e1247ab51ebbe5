"""Finds the function that a decorator has wrapped, also when it does not use functools.wraps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

# How many decorators are looked through.
MAX_DEPTH = 8
# A wrapper passes on arguments that it does not know.
_PASSES_ON = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def with_wrapped(view: Any, follow: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """The view, and what it wraps, from the outside in, as far as `follow` returns true."""
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
    """What a decorator calls is a variable of the function around its wrapper."""
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
        if _is_wrappable(content):
            yield content


def _is_wrappable(content: Any) -> bool:
    return callable(content) and not inspect.isclass(content)
