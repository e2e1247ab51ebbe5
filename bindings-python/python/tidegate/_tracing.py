"""Which limiters are traced, for what holds a limiter itself: the web layers and `@limiter.limit`.

`tidegate.opentelemetry` adds the limiters. This module needs no OpenTelemetry.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from ._tidegate import AsyncLimiter, Limiter

AnyLimiter: TypeAlias = "Limiter | AsyncLimiter"

# By the id of a limiter that lives: what makes a TracedLimiter of it. A dict of ids, because each request tests whether
# it is empty, and that of a WeakKeyDictionary is a call.
TRACED: dict[int, Callable[[AnyLimiter], Any]] = {}
# The limiters that `to_async` and `to_blocking` have made of one another: one that is traced means all of them.
_SAME: weakref.WeakKeyDictionary[AnyLimiter, weakref.WeakSet[AnyLimiter]] = weakref.WeakKeyDictionary()


class LimiterWrapper:
    """What makes the calls of a limiter in its place."""

    _limiter: AnyLimiter


def unwrapped(limiter: Any) -> Any:
    """The limiter itself, from what `traced` has returned; anything else as it is."""
    return limiter._limiter if isinstance(limiter, LimiterWrapper) else limiter


def trace_calls(limiter: AnyLimiter, wrap: Callable[[AnyLimiter], Any]) -> None:
    """From now on `wrap` makes what is asked in the place of this limiter."""
    for one in [limiter, *_SAME.get(limiter, ())]:
        if id(one) not in TRACED:
            weakref.finalize(one, TRACED.pop, id(one), None).atexit = False
        TRACED[id(one)] = wrap


def to_blocking(limiter: AnyLimiter) -> Limiter:
    """The limiter for threads, which is traced when the given one is."""
    return limiter if isinstance(limiter, Limiter) else _join(limiter, limiter.to_blocking())


def to_async(limiter: AnyLimiter) -> AsyncLimiter:
    """The limiter for event loops, which is traced when the given one is."""
    return limiter if isinstance(limiter, AsyncLimiter) else _join(limiter, limiter.to_async())


def _join(limiter: AnyLimiter, made: Any) -> Any:
    same = _SAME.setdefault(limiter, weakref.WeakSet((limiter,)))
    same.add(made)
    _SAME[made] = same
    if (wrap := TRACED.get(id(limiter))) is not None:
        trace_calls(made, wrap)
    return made


def asked(limiter: Any) -> Any:
    """What is asked in the place of a limiter: with spans where it is traced. Its callers test TRACED before."""
    wrap = TRACED.get(id(limiter))
    return limiter if wrap is None else wrap(limiter)
