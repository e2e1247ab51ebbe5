"""Continues the tasks of an event loop whose calls were answered."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

# The context of a task, what continues it, and the future for which it waits.
Waiting = tuple[Context, Callable[[Any], object], Any]


def continuing(
    event_loop: AbstractEventLoop, answered: Callable[[], Iterable[Waiting]], end: Callable[[], None]
) -> Callable[[], None]:
    """A callback of the loop that continues the tasks that `answered` lists, and then calls `end`.

    It is not written in Rust. Tasks run code of users, and before 3.14 the interpreter may end their thread meanwhile:
    frames of Rust below that code would abort the process.
    """

    def continue_tasks() -> None:
        waiting = iter(answered())
        try:
            # The debug mode of the loop measures and names each callback, so there each task needs one of its own.
            if not event_loop.get_debug():
                for context, wake, future in waiting:
                    context.run(wake, future)
        finally:
            for context, wake, future in waiting:
                event_loop.call_soon(wake, future, context=context)
            end()

    return continue_tasks
