"""Reads a body before its caller does, for a bounded time. The caller still gets all of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

# The most bytes of a body that are read to find limits in it, and the longest time for that.
MOST_BODY = 65_536
BODY_SECONDS = 1.0


class _Kept:
    """The part of a body that was read before its caller reads it."""

    def __init__(self) -> None:
        self._chunks_kept: deque[bytes] = deque()
        self._length = 0
        self._is_whole = self._is_handed_on = False
        self._error: Exception | None = None

    def _keeps(self, chunk: bytes) -> bool:
        """Keeps a chunk. Returns True if another one is wanted."""
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
    """The body of a blocking client. A thread reads it, because a read in progress cannot be stopped and repeated."""

    def __init__(
        self, chunks: Iterable[bytes], close: Callable[[], object], interrupt: Callable[[], object] | None = None
    ) -> None:
        super().__init__()
        self._chunks, self._close, self._interrupt = iter(chunks), close, interrupt
        self._lock, self._is_idle, self._is_closed = threading.Lock(), threading.Event(), False

    def all(self) -> bytes | None:
        """Returns the whole body, or None if it is too long, too late or broken."""
        try:
            threading.Thread(target=self._read, daemon=True).start()
        except RuntimeError:
            # The interpreter is shutting down.
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
        # The thread may be in a read.
        self._is_idle.wait()
        yield from self._taken()
        if self._error is not None:
            raise self._error
        yield from self._chunks

    def close(self) -> None:
        """Gives the body up. If the thread is reading it, the thread closes it."""
        with self._lock:
            self._is_closed = True
            is_idle = self._is_idle.is_set()
        if is_idle:
            self._close()
        elif self._interrupt is not None:
            # Without this, the thread closes the body only when its read ends by itself.
            with contextlib.suppress(Exception):
                self._interrupt()


class AsyncReadAhead(_Kept):
    """The same for a client of an event loop, where a task reads it."""

    def __init__(self, chunks: AsyncIterator[bytes], close: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._chunks, self._close = chunks, close
        self._task: asyncio.Task[None] | None = None

    async def all(self) -> bytes | None:
        """Returns the whole body, or None if it is too long, too late or broken."""
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
