"""One text of the rules for threads and event loops: what they ask for while they run, as steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator
from typing import Any, NoReturn, TypeAlias, TypeVar

from .._tidegate import AsyncLimiter, Limiter
from ..errors import ConfigError
from .functions import name_of

T = TypeVar("T")
# What a rule asks for, and what it gets: a call of the limiter by name, or an awaitable to wait for.
Step: TypeAlias = "tuple[str, Any]"
Steps: TypeAlias = Generator[Step, Any, T]


def run(steps: Steps[T], limiter: Limiter) -> T:
    """Takes the steps on the calling thread."""
    try:
        name, given = next(steps)
        while True:
            try:
                result: Any = None
                if name == "sleep":
                    time.sleep(given)
                elif name == "wait":
                    _refuse_async(given)
                else:
                    result = getattr(limiter, name)(*given)
            except Exception as error:
                name, given = steps.throw(error)
            else:
                name, given = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Steps[T], limiter: AsyncLimiter) -> T:
    """Takes the steps on an event loop."""
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
                    result = await getattr(limiter, name)(*given)
            except Exception as error:
                name, given = steps.throw(error)
            else:
                name, given = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _refuse_async(given: Any) -> NoReturn:
    close = getattr(given, "close", None)
    if close is not None:
        close()
    raise ConfigError(f"{name_of(given)} is async: this framework calls key, cost, skip and the like on a thread")


def waited(given: Any) -> Steps[Any]:
    """What was given, awaited where that is needed."""
    if isinstance(given, Awaitable):
        given = yield "wait", given
    return given
