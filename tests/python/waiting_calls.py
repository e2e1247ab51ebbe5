"""Calls that wait, each on its own thread or in its own task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from tidegate import AsyncLimiter, Limiter, ManualClock, RateLimited

# No call takes this many seconds unless something is broken.
PATIENCE = 20.0


class WaitingCall:
    """A call of `acquire` or `hold`, and the time on the clock when it is answered."""

    def __init__(self, about: tuple[str, Any]) -> None:
        self.about = about
        self.answered: tuple[float, Any] | None = None

    def is_answered(self) -> bool:
        return self.answered is not None

    def answer(self) -> tuple[float, Any]:
        """Returns the time and the answer: a hold, or a Decision, also that of a denied hold."""
        assert self.answered is not None
        at, answer = self.answered
        if isinstance(answer, RateLimited):
            return at, answer.decision
        if isinstance(answer, BaseException):
            raise answer
        return at, answer

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.001)

    async def cancel(self) -> None:
        raise NotImplementedError("a thread cannot be cancelled")


class ThreadCall(WaitingCall):
    def __init__(
        self, limiter: Limiter, clock: ManualClock, do: str, about: tuple[str, Any], options: dict[str, Any]
    ) -> None:
        super().__init__(about)

        def call() -> None:
            answer: Any
            try:
                answer = getattr(limiter, do)(*about, **options)
            except Exception as error:
                answer = error
            self.answered = (clock.now(), answer)

        threading.Thread(target=call, daemon=True).start()


class TaskCall(WaitingCall):
    def __init__(
        self, limiter: AsyncLimiter, clock: ManualClock, do: str, about: tuple[str, Any], options: dict[str, Any]
    ) -> None:
        super().__init__(about)

        async def call() -> None:
            answer: Any
            try:
                answer = await getattr(limiter, do)(*about, **options)
            except Exception as error:
                answer = error
            self.answered = (clock.now(), answer)

        self.task = asyncio.create_task(call())

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()
