"""The books of a strict server: exact, and made without any code of Tidegate.

For a request a book decides the admission, the units that are left, and the wait. Times are seconds of any clock.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """The answer of a limit to a request."""

    admitted: bool
    limit: int
    window: float
    unit: str
    remaining: int
    # Seconds until the limit is as if unused. A window has then forgotten all of its units.
    reset_after: float
    # Seconds until the request is admitted, if no other comes. 0 if it is admitted now.
    retry_after: float


class Book:
    """A limit. `may` looks and changes nothing, `take` consumes, `end` is called when a request has ended."""

    def __init__(self, limit: int, window: float, unit: str) -> None:
        self.limit, self.window, self.unit = limit, window, unit

    def may(self, now: float, cost: int) -> Verdict:
        free = self._free(now)
        wait = 0.0 if cost <= free else self._wait(now, cost)
        return Verdict(
            cost <= free, self.limit, self.window, self.unit, max(0, math.floor(free)), self._reset(now), wait
        )

    def take(self, now: float, cost: int) -> None:
        raise NotImplementedError

    def end(self, cost: int) -> None:
        """Ends a request that was admitted. Only `concurrency` needs it."""

    def change(self, now: float, limit: int) -> None:
        """Sets another limit from now on. Used units stay used."""
        self.limit = limit

    def _free(self, now: float) -> float:
        raise NotImplementedError

    def _wait(self, now: float, cost: int) -> float:
        raise NotImplementedError

    def _reset(self, now: float) -> float:
        raise NotImplementedError


class TokenBucket(Book):
    """`limit` units a window flow in, one after the other, into a bucket that holds `burst`."""

    def __init__(self, limit: int, window: float, unit: str, now: float, burst: int = 0) -> None:
        super().__init__(limit, window, unit)
        self._burst = burst or limit
        self._level, self._at = float(self._burst), now

    def take(self, now: float, cost: int) -> None:
        self._level, self._at = self._free(now) - cost, now

    def change(self, now: float, limit: int) -> None:
        level = self._free(now)
        self._burst = max(1, self._burst * limit // self.limit)
        self._level, self._at, self.limit = min(level, self._burst), now, limit

    def _free(self, now: float) -> float:
        # A sum of many small parts is a little less than the whole.
        return min(self._burst, self._level + (now - self._at) * self.limit / self.window + 1e-9)

    def _wait(self, now: float, cost: int) -> float:
        return (cost - self._free(now)) * self.window / self.limit

    def _reset(self, now: float) -> float:
        return (self._burst - self._free(now)) * self.window / self.limit


class FixedWindow(Book):
    """`limit` units in each window. The first begins at `now`, and each next one at the end of the one before."""

    def __init__(self, limit: int, window: float, unit: str, now: float) -> None:
        super().__init__(limit, window, unit)
        self._start, self._used = now, 0

    def take(self, now: float, cost: int) -> None:
        self._roll(now)
        self._used += cost

    def _roll(self, now: float) -> None:
        passed = math.floor((now - self._start) / self.window)
        if passed > 0:
            self._start += passed * self.window
            self._used = 0

    def _free(self, now: float) -> float:
        self._roll(now)
        return self.limit - self._used

    def _wait(self, now: float, cost: int) -> float:
        return self._reset(now)

    def _reset(self, now: float) -> float:
        return self._start + self.window - now


class SlidingWindow(Book):
    """`limit` units in any window. Each request is remembered until it is older than that."""

    def __init__(self, limit: int, window: float, unit: str) -> None:
        super().__init__(limit, window, unit)
        self._log: deque[tuple[float, int]] = deque()
        self._used = 0

    def take(self, now: float, cost: int) -> None:
        self._log.append((now, cost))
        self._used += cost

    def _free(self, now: float) -> float:
        while self._log and self._log[0][0] <= now - self.window:
            self._used -= self._log.popleft()[1]
        return self.limit - self._used

    def _wait(self, now: float, cost: int) -> float:
        free = self.limit - self._used
        for at, units in self._log:
            free += units
            if cost <= free:
                return at + self.window - now
        return self.window

    def _reset(self, now: float) -> float:
        return self._log[-1][0] + self.window - now if self._log else 0.0


class Concurrency(Book):
    """`limit` units in use at the same time. The book does not know when others end."""

    def __init__(self, limit: int, unit: str) -> None:
        super().__init__(limit, 0.0, unit)
        self._used = 0

    def take(self, now: float, cost: int) -> None:
        self._used += cost

    def end(self, cost: int) -> None:
        self._used -= cost

    def _free(self, now: float) -> float:
        return self.limit - self._used

    def _wait(self, now: float, cost: int) -> float:
        return 1.0

    def _reset(self, now: float) -> float:
        return 0.0


def book_of(described: dict[str, Any], now: float) -> Book:
    """Makes the book of `{"book": "fixed-window", "limit": 10, "window": 1, "unit": "requests"}`."""
    kind, limit, unit = described["book"], int(described["limit"]), str(described.get("unit", "requests"))
    window = float(described.get("window", 1))
    if kind == "token-bucket":
        return TokenBucket(limit, window, unit, now, int(described.get("burst", 0)))
    if kind == "fixed-window":
        return FixedWindow(limit, window, unit, now)
    if kind == "sliding-window":
        return SlidingWindow(limit, window, unit)
    if kind == "concurrency":
        return Concurrency(limit, unit)
    raise ValueError("there is no book " + repr(kind))


def admit(books: list[Book], costs: list[int], now: float) -> list[Verdict]:
    """Asks every book. All of them charge, or none does."""
    if all(book.may(now, cost).admitted for book, cost in zip(books, costs)):
        for book, cost in zip(books, costs):
            book.take(now, cost)
        return [book.may(now, 0) for book in books]
    return [book.may(now, cost) for book, cost in zip(books, costs)]
