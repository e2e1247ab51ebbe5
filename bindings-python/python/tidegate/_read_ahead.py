"""A body that is read before its caller reads it, for a bounded time. The caller gets all of it all the same."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

# The most of a body that is read for what it says of limits, and the longest time for that.
MOST_BODY = 65_536
BODY_SECONDS = 1.0


class _Kept:
    """What came of a body before its caller reads it."""

    def __init__(self) -> None:
        self._chunks_kept: deque[bytes] = deque()
        self._length = 0
        self._is_whole = self._is_handed_on = False
        self._error: Exception | None = None

    def _keeps(self, chunk: bytes) -> bool:
        """Keeps a chunk. Returns whether another one is wanted."""
        self._chunks_kept.append(chunk)
        self._length += len(chunk)
        return not self._is_handed_on and self._length <= MOST_BODY

    def _hand_on(self) -> bytes | None:
        self._is_handed_on = True
        return b"".join(self._chunks_kept) if self._is_whole else None

    def _taken(self) -> Iterator[bytes]:
        while self._chunks_kept:
            yield self._chunks_kept.popleft()


class ReadAhead(_Kept):
    """The body of a blocking client. A thread reads it, for a read that has begun cannot be given up and made again."""

    def __init__(
        self, chunks: Iterable[bytes], close: Callable[[], object], interrupt: Callable[[], object] | None = None
    ) -> None:
        super().__init__()
        self._chunks, self._close, self._interrupt = iter(chunks), close, interrupt
        self._lock, self._is_idle, self._is_closed = threading.Lock(), threading.Event(), False

    def all(self) -> bytes | None:
        """All of it, unless it is too long, too late or broken."""
        try:
            threading.Thread(target=self._read, daemon=True).start()
        except RuntimeError:
            # The interpreter ends.
            self._is_idle.set()
        self._is_idle.wait(BODY_SECONDS)
        return self._hand_on()

    def _read(self) -> None:
        try:
            for chunk in self._chunks:
                if not self._keeps(chunk):
                    break
            else:
                self._is_whole = True
        except Exception as error:
            self._error = error
        with self._lock:
            self._is_idle.set()
            is_closed = self._is_closed
        if is_closed:
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        yield from self._taken()
        # The read that the thread has begun.
        self._is_idle.wait()
        yield from self._taken()
        if self._error is not None:
            raise self._error
        yield from self._chunks

    def close(self) -> None:
        """Gives the body up. The thread closes it, if it is in a read."""
        with self._lock:
            self._is_closed = True
            is_idle = self._is_idle.is_set()
        if is_idle:
            self._close()
        elif self._interrupt is not None:
            # Without it the thread closes the body when its read ends.
            with contextlib.suppress(Exception):
                self._interrupt()


class AsyncReadAhead(_Kept):
    """The same for a client of an event loop, where a task reads it."""

    def __init__(self, chunks: AsyncIterator[bytes], close: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._chunks, self._close = chunks, close
        self._task: asyncio.Task[None] | None = None

    async def all(self) -> bytes | None:
        """All of it, unless it is too long, too late or broken."""
        self._task = asyncio.get_running_loop().create_task(self._read())
        await asyncio.wait([self._task], timeout=BODY_SECONDS)
        return self._hand_on()

    async def _read(self) -> None:
        try:
            async for chunk in self._chunks:
                if not self._keeps(chunk):
                    return
            self._is_whole = True
        except Exception as error:
            self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._taken():
            yield chunk
        if self._task is not None:
            await asyncio.wait([self._task])
        for chunk in self._taken():
            yield chunk
        if self._error is not None:
            raise self._error
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        """Gives the body up."""
        if self._task is not None and self._task.cancel():
            await asyncio.wait([self._task])
        await self._close()
