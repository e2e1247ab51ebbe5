"""The event loops that the tests use, and functions that run coroutines on them."""

from __future__ import annotations

import asyncio
import inspect
import selectors
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

if sys.platform == "win32":
    uvloop = None
else:
    uvloop = pytest.importorskip("uvloop")

Main = Callable[[], Coroutine[Any, Any, Any]]


class Fileless(asyncio.SelectorEventLoop):
    """A loop that watches no files, like the default loop of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "selectors": lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()),
    "fileless": Fileless,
    "uvloop": lambda: uvloop.new_event_loop(),
}


def run(main: Main, loop: str = "asyncio") -> Any:
    """Does the same as asyncio.run, on a loop of that kind."""
    made = LOOPS[loop]()
    asyncio.set_event_loop(made)
    try:
        return made.run_until_complete(main())
    finally:
        made.run_until_complete(made.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        made.close()


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Waits until a condition holds, which another thread brings about."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true within 30 s")
