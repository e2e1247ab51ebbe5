"""Rules that are written once for threads and for event loops.

Such a rule is a generator. It yields a call of the limiter, a sleep or an awaitable, and receives the result.
`run_steps` runs it on a thread, `run_steps_async` on an event loop.
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
# A method of the limiter with its arguments, or "sleep" with seconds, or "wait" with an awaitable.
Step: TypeAlias = "tuple[str, Any]"
Steps: TypeAlias = Generator[Step, Any, T]


def run_steps(steps: Steps[T], limiter: Limiter, wait: Callable[[Any], Any] | None = None) -> T:
    """Runs the steps on the calling thread. Without `wait`, an awaitable raises ConfigError."""
    # It shares no loop with `run_steps_async`, because a coroutine for each run costs a Django request 5 %.
    called = asked(limiter) if TRACED else limiter
    try:
        name, given = next(steps)
        while True:
            try:
                result: Any = None
                if name == "sleep":
                    time.sleep(given)
                elif name == "wait":
                    result = (wait or _refuse_awaitable)(given)
                else:
                    result = getattr(called, name)(*given)
            except BaseException as error:
                name, given = steps.throw(error)
            else:
                name, given = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_steps_async(steps: Steps[T], limiter: AsyncLimiter) -> T:
    """Runs the steps on an event loop."""
    called = asked(limiter) if TRACED else limiter
    try:
        name, given = next(steps)
        while True:
            try:
                result: Any = None
                if name == "sleep":
                    await asyncio.sleep(given)
                elif name == "wait":
                    result = await given
                else:
                    result = await getattr(called, name)(*given)
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
    raise ConfigError(
        f"{name_of(given)} is async: give a function that is not, because this framework calls key, cost, skip and "
        "the like on a thread"
    )


def awaited(given: Any) -> Steps[Any]:
    """Returns the value, after waiting for it if it is awaitable."""
    if isinstance(given, Awaitable):
        given = yield "wait", given
    return given
