"""Continues the tasks of an event loop that have an answer to their call."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

# The context of a task, the callback that continues it, and the future for which it waits.
Waiting = tuple[Context, Callable[[Any], object], Any]


def continuing(
    event_loop: AbstractEventLoop, answered: Callable[[], Iterable[Waiting]], end: Callable[[], None]
) -> Callable[[], None]:
    """Returns a callback for the loop. It continues the tasks that `answered` lists, and then calls `end`.

    This is not written in Rust, because tasks run code of users. Before Python 3.14 the interpreter may end their
    thread meanwhile, and frames of Rust below that code would abort the process.
    """

    def continue_tasks() -> None:
        waiting = iter(answered())
        try:
            # The debug mode of the loop measures and names each callback, so there each task gets its own.
            if not event_loop.get_debug():
                for context, wake, future in waiting:
                    context.run(wake, future)
        finally:
            for context, wake, future in waiting:
                event_loop.call_soon(wake, future, context=context)
            end()

    return continue_tasks
