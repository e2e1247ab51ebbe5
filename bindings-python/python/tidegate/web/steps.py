"""Rules that are written once for threads and for event loops.

Such a rule is a generator. It yields what it needs, a call of the limiter or an awaitable, and receives the result.
`run_steps` carries that out on a thread, `run_steps_async` on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NoReturn, TypeAlias, TypeVar

from .._tidegate import AsyncLimiter, Limiter
from .._tracing import TRACED, asked
from ..errors import ConfigError
from .functions import name_of

T = TypeVar("T")
# A method of the limiter with its arguments, or "sleep" or "wait" with what to wait for.
Step: TypeAlias = "tuple[str, Any]"
Steps: TypeAlias = Generator[Step, Any, T]


def run_steps(steps: Steps[T], limiter: Limiter, wait: Callable[[Any], Any] | None = None) -> T:
    """Runs the steps on the calling thread. `wait` waits for an awaitable there; without it there may be none."""
    try:
        # Nothing is awaited, so the first step of this coroutine is its last.
        _run(steps, limiter, {"sleep": time.sleep, "wait": wait or _refuse_awaitable}, awaits=False).send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a step on a thread was awaited")


async def run_steps_async(steps: Steps[T], limiter: AsyncLimiter) -> T:
    """Runs the steps on an event loop."""
    return await _run(steps, limiter, _ON_LOOP, awaits=True)


_ON_LOOP: dict[str, Callable[[Any], Any]] = {"sleep": asyncio.sleep, "wait": lambda given: given}


async def _run(steps: Steps[T], limiter: Any, ways: dict[str, Callable[[Any], Any]], awaits: bool) -> T:
    called = asked(limiter) if TRACED else limiter
    try:
        name, given = next(steps)
        while True:
            try:
                result = ways[name](given) if name in ways else getattr(called, name)(*given)
                if awaits:
                    result = await result
            except BaseException as error:
                name, given = steps.throw(error)
            else:
                name, given = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _refuse_awaitable(given: Any) -> NoReturn:
    close = getattr(given, "close", None)
    if close is not None:
        close()
    raise ConfigError(f"{name_of(given)} is async: this framework calls key, cost, skip and the like on a thread")


def awaited(given: Any) -> Steps[Any]:
    """Returns the value, after waiting for it if it is awaitable."""
    if isinstance(given, Awaitable):
        given = yield "wait", given
    return given
