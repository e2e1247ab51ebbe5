"""Keeps the traced limiters, for code that holds a limiter itself: the web layers and `@limiter.limit`.

`tidegate.opentelemetry` adds the limiters. This module needs no OpenTelemetry.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from ._tidegate import AsyncLimiter, Limiter

AnyLimiter: TypeAlias = "Limiter | AsyncLimiter"

# The function that makes a TracedLimiter, by the id of a living limiter. A dict of ids, because each request tests if
# it is empty, and that test of a WeakKeyDictionary is a call.
TRACED: dict[int, Callable[[AnyLimiter], Any]] = {}
# The limiters that `to_async` and `to_blocking` have made from one another. Tracing one of them traces all.
_SAME: weakref.WeakKeyDictionary[AnyLimiter, weakref.WeakSet[AnyLimiter]] = weakref.WeakKeyDictionary()
# Held while `_SAME` is read or changed, because a set that grows cannot be iterated over.
_LOCK = threading.RLock()


def _begin_anew() -> None:
    """Replaces the lock in a forked child, where no thread is left to free it."""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class LimiterWrapper:
    """Makes the calls of a limiter in its place."""

    _limiter: AnyLimiter


def unwrapped(limiter: Any) -> Any:
    """Returns the limiter inside the result of `traced`, and anything else as it is."""
    return limiter._limiter if isinstance(limiter, LimiterWrapper) else limiter


def trace_calls(limiter: AnyLimiter, wrap: Callable[[AnyLimiter], Any]) -> None:
    """From now on, `wrap` makes the object that is asked in place of this limiter."""
    with _LOCK:
        for one in [limiter, *_SAME.get(limiter, ())]:
            if id(one) not in TRACED:
                weakref.finalize(one, TRACED.pop, id(one), None).atexit = False
            TRACED[id(one)] = wrap


def to_blocking(limiter: AnyLimiter) -> Limiter:
    """Returns the limiter for threads. It is traced if the given one is."""
    return limiter if isinstance(limiter, Limiter) else _join(limiter, limiter.to_blocking())


def to_async(limiter: AnyLimiter) -> AsyncLimiter:
    """Returns the limiter for event loops. It is traced if the given one is."""
    return limiter if isinstance(limiter, AsyncLimiter) else _join(limiter, limiter.to_async())


def _join(limiter: AnyLimiter, made: Any) -> Any:
    with _LOCK:
        same = _SAME.setdefault(limiter, weakref.WeakSet((limiter,)))
        same.add(made)
        _SAME[made] = same
        if (wrap := TRACED.get(id(limiter))) is not None:
            trace_calls(made, wrap)
    return made


def asked(limiter: Any) -> Any:
    """Returns the object to ask in place of a limiter: one with spans if it is traced. Callers test TRACED before."""
    wrap = TRACED.get(id(limiter))
    return limiter if wrap is None else wrap(limiter)
