"""The result of `AsyncLimiter.hold`."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._tidegate import AsyncHold


class Holding:
    """A hold that you take with `async with limiter.hold(…) as hold`, or with `hold = await limiter.hold(…)`."""

    __slots__ = ("_hold", "_pending")

    def __init__(self, pending: Coroutine[Any, Any, AsyncHold]) -> None:
        self._pending = pending
        self._hold: AsyncHold | None = None

    def __await__(self) -> Generator[Any, Any, AsyncHold]:
        return self._pending.__await__()

    async def __aenter__(self) -> AsyncHold:
        self._hold = await self._pending
        return self._hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hold is not None:
            await self._hold.release()

    def __bool__(self) -> bool:
        raise TypeError("this hold was not awaited: write `async with limiter.hold(…)`")
