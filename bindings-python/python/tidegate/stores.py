"""Stores of your own: any database that reads a value with its version, and replaces it only if that is the same.

    from tidegate.stores import Change, KeyValueStore, NotApplied, Value, verify

A `Limiter` calls the methods on the threads of its callers. An `AsyncLimiter` needs methods that are `async def`. The
page "Your own store" of the documentation has complete stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from ._tidegate import verify_store

__all__ = ["AsyncKeyValueStore", "Change", "KeyValueStore", "NotApplied", "Value", "verify"]

Version = int | str | bytes


class Value(NamedTuple):
    """A value that stands in the store. The version of a key never repeats, not even after the value was deleted."""

    version: Version
    data: bytes


class Change(NamedTuple):
    """A change of one key.

    - `version`: the version that it replaces. None: there must be no value.
    - `data`: the new value. None deletes the key.
    - `expires_at`: unix seconds. The store may drop the value from then on, and must not drop it before.
    """

    key: bytes
    version: Version | None
    data: bytes | None
    expires_at: float


class NotApplied(Exception):
    """Raise it in `compare_and_swap` if the changes certainly did not happen. They are tried again until the deadline.

    Any other exception of that method means that the changes may have happened.
    """


class KeyValueStore(Protocol):
    """A store whose methods block, for `Limiter`. Several threads may call them at once.

    A store may also have `scan(prefix)`, which iterates over the keys that begin with the prefix, and `epoch()`, which
    returns a value that changes when the store restarts. It does not need to inherit from this class.
    """

    # True promises that `compare_and_swap` makes all changes of a call or none, so that `check_all` is atomic.
    all_or_none: ClassVar[bool] = False
    # The most bytes of a value.
    max_value: ClassVar[int] = 256_000

    def read(self, keys: Sequence[bytes], timeout: float) -> tuple[float | None, Sequence[Value | None]]:
        """Returns the clock of the store in unix seconds, or None, and a Value or None for each key.

        There are at most 256 keys of at most 64 bytes. `timeout` is the number of seconds that are left.
        """
        raise NotImplementedError

    def compare_and_swap(
        self, changes: Sequence[Change], timeout: float
    ) -> tuple[float | None, Sequence[Literal[True] | Value | None]]:
        """Makes each change only if its key has that version.

        Returns the clock, and for each change True if it was made, or else the Value that stands there, or None.
        """
        raise NotImplementedError


class AsyncKeyValueStore(Protocol):
    """The same for `AsyncLimiter`: the methods are `async def`, and `scan` is an async iterator."""

    all_or_none: ClassVar[bool] = False
    max_value: ClassVar[int] = 256_000

    async def read(self, keys: Sequence[bytes], timeout: float) -> tuple[float | None, Sequence[Value | None]]:
        """As `KeyValueStore.read`."""
        raise NotImplementedError

    async def compare_and_swap(
        self, changes: Sequence[Change], timeout: float
    ) -> tuple[float | None, Sequence[Literal[True] | Value | None]]:
        """As `KeyValueStore.compare_and_swap`."""
        raise NotImplementedError


def verify(store: KeyValueStore | AsyncKeyValueStore) -> Any:
    """Tests a store, in about two seconds. It raises ConfigError with a sentence that names the defect.

    It writes a few hundred keys that begin with `verify`, and deletes them. If the methods are `async def`, call it
    within the event loop: `await verify(store)`.
    """
    return verify_store(store)


# The loop refers to its tasks only weakly.
_tasks: set[asyncio.Task[None]] = set()


def _begin(event_loop: asyncio.AbstractEventLoop, store: Any, question: Any, timeout: float) -> None:
    """Makes the task that answers a call of an async store. It is cancelled at the deadline of the call."""
    task = event_loop.create_task(_answer(store, question))
    _tasks.add(task)
    end = event_loop.call_later(timeout, task.cancel)

    def ended(task: asyncio.Task[None]) -> None:
        end.cancel()
        _tasks.discard(task)

    task.add_done_callback(ended)


async def _answer(store: Any, question: Any) -> None:
    try:
        call, scans = question.call(store)
        answer = [key async for key in call] if scans else await call
    except BaseException as error:
        question.fail(error)
        if not isinstance(error, Exception):
            raise
    else:
        question.answer(answer)
