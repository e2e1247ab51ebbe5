"""Storages for the `limits` package. Flask-Limiter, slowapi and others that are built on it then run on Tidegate.

    import tidegate.limits                                   # registers the schemes

    Limiter(get_remote_address, app=app, storage_uri="tidegate+redis://127.0.0.1:6379/0")

A scheme is `tidegate+` and a scheme of Tidegate, and for `limits.aio` it begins with `async+tidegate+`. The storage
options are those of a limiter: prefix, timeout, on_store_error, deny_cache. Fixed windows are `fixed-window`, moving
windows `sliding-log`, and sliding window counters `sliding-counter`.

Two things differ from the storages of `limits`: only the store's clock decides, and `reset` clears the keys that this
storage object remembers to have used, since Tidegate has no call that clears all keys: the newest 100,000 that have at
most 200 characters.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any, ClassVar

from limits import aio, storage
from limits.limits import GRANULARITIES

from ._tidegate import AsyncLimiter, Decision, Limit, Limiter, Policy
from .errors import TidegateError
from .web.steps import Steps, run_steps, run_steps_async

__all__ = ["AsyncTidegateStorage", "TidegateStorage"]

SCHEMES = [
    f"tidegate+{scheme}"
    for scheme in (
        "memory",
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "redis+cluster",
        "valkey",
        "valkeys",
    )
]
# A storage of `limits` counts without a limit: a count is what is missing from the largest limit there is.
MAX_COUNT = 10**12
# The number of keys whose expiry is remembered, and the length of the longest. The expiry of any other is read from
# the key.
MAX_EXPIRIES = 100_000
MAX_REMEMBERED_KEY = 200


@functools.lru_cache(maxsize=1024)
def _policy(algorithm: str, count: int, expiry: int) -> Policy:
    # The count is no part of a limit's identity: what is charged with one count is seen with another.
    return Policy(Limit(algorithm, count, period=float(expiry)), name=f"limits.{algorithm}")


class _StorageSteps:
    """The calls of both storages, as steps."""

    def __init__(self) -> None:
        self._expiries: OrderedDict[str, int] = OrderedDict()

    def _remember(self, key: str, expiry: int) -> None:
        if len(key) > MAX_REMEMBERED_KEY:
            return
        self._expiries[key] = expiry
        if len(self._expiries) > MAX_EXPIRIES:
            self._expiries.popitem(last=False)

    def _expiry(self, key: str) -> int | None:
        """The expiry of a key. If only another process has used it, its end is read: /count/multiples/unit."""
        expiry = self._expiries.get(key)
        if expiry is not None:
            return expiry
        *_, multiples, name = ("", "", *key.split("/"))
        granularity = GRANULARITIES.get(name)
        if granularity is None or not multiples.isdigit():
            return None
        return granularity.GRANULARITY.seconds * int(multiples)

    def _incr(self, key: str, expiry: int, amount: int) -> Steps[int]:
        self._remember(key, expiry)
        decision: Decision = yield "charge", (_policy("fixed-window", MAX_COUNT, expiry), key, amount)
        return MAX_COUNT - decision.remaining

    def _fixed(self, key: str) -> Steps[Decision | None]:
        expiry = self._expiry(key)
        if expiry is None:
            return None
        decision: Decision = yield "peek", (_policy("fixed-window", MAX_COUNT, expiry), key)
        return decision

    def _get(self, key: str) -> Steps[int]:
        decision = yield from self._fixed(key)
        return 0 if decision is None else MAX_COUNT - decision.remaining

    def _get_expiry(self, key: str) -> Steps[float]:
        decision = yield from self._fixed(key)
        return 0.0 if decision is None else decision.reset_at

    def _clear(self, key: str) -> Steps[None]:
        expiry = self._expiry(key)
        if expiry is None:
            return
        for algorithm in ("fixed-window", "sliding-log", "sliding-counter"):
            yield "clear", (_policy(algorithm, MAX_COUNT, expiry), key)

    def _reset(self) -> Steps[int]:
        keys = list(self._expiries)
        for key in keys:
            yield from self._clear(key)
        self._expiries.clear()
        return len(keys)

    def _check(self) -> Steps[bool]:
        try:
            yield "ping", ()
        except TidegateError:
            return False
        return True

    def _acquire(self, algorithm: str, key: str, limit: int, expiry: int, amount: int) -> Steps[bool]:
        if amount > limit:
            return False
        self._remember(key, expiry)
        decision: Decision = yield "check", (_policy(algorithm, limit, expiry), key, amount)
        return decision.allowed

    def _moving(self, key: str, limit: int, expiry: int) -> Steps[tuple[float, int]]:
        policy = _policy("sliding-log", limit, expiry)
        decision: Decision = yield "peek", (policy, key)
        now = decision.reset_at - decision.reset_after
        used = limit - decision.remaining
        if used == 0:
            return now, 0
        # The window began with its oldest entry. One more unit is admitted when that entry leaves the window.
        more: Decision = yield "peek", (policy, key, decision.remaining + 1)
        return now + (more.retry_after or 0.0) - expiry, used

    def _sliding(self, key: str, expiry: int) -> Steps[tuple[int, float, int, float]]:
        # The whole estimate is reported as the count of the current window.
        decision: Decision = yield "peek", (_policy("sliding-counter", MAX_COUNT, expiry), key)
        return 0, 0.0, MAX_COUNT - decision.remaining, decision.reset_after

    def _clear_sliding(self, key: str, expiry: int) -> Steps[None]:
        yield "clear", (_policy("sliding-counter", MAX_COUNT, expiry), key)


class TidegateStorage(_StorageSteps, storage.Storage, storage.MovingWindowSupport, storage.SlidingWindowCounterSupport):
    """Tidegate as a storage of `limits`."""

    STORAGE_SCHEME: ClassVar[list[str] | None] = SCHEMES  # type: ignore[misc]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        _StorageSteps.__init__(self)
        storage.Storage.__init__(self, uri, wrap_exceptions)
        self.limiter = Limiter(uri.removeprefix("tidegate+"), **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What `wrap_exceptions` wraps."""
        return TidegateError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return run_steps(self._incr(key, expiry, amount), self.limiter)

    def get(self, key: str) -> int:
        return run_steps(self._get(key), self.limiter)

    def get_expiry(self, key: str) -> float:
        return run_steps(self._get_expiry(key), self.limiter)

    def check(self) -> bool:
        return run_steps(self._check(), self.limiter)

    def reset(self) -> int | None:
        return run_steps(self._reset(), self.limiter)

    def clear(self, key: str) -> None:
        run_steps(self._clear(key), self.limiter)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return run_steps(self._acquire("sliding-log", key, limit, expiry, amount), self.limiter)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return run_steps(self._moving(key, limit, expiry), self.limiter)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return run_steps(self._acquire("sliding-counter", key, limit, expiry, amount), self.limiter)

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return run_steps(self._sliding(key, expiry), self.limiter)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets a sliding window counter."""
        run_steps(self._clear_sliding(key, expiry), self.limiter)


class AsyncTidegateStorage(
    _StorageSteps, aio.storage.Storage, aio.storage.MovingWindowSupport, aio.storage.SlidingWindowCounterSupport
):
    """Tidegate as a storage of `limits.aio`."""

    STORAGE_SCHEME: ClassVar[list[str] | None] = [f"async+{scheme}" for scheme in SCHEMES]  # type: ignore[misc]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        _StorageSteps.__init__(self)
        # Some callers remove the first part of the URI.
        aio.storage.Storage.__init__(self, uri, wrap_exceptions)
        self.limiter = AsyncLimiter(uri.removeprefix("async+").removeprefix("tidegate+"), **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What `wrap_exceptions` wraps."""
        return TidegateError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return await run_steps_async(self._incr(key, expiry, amount), self.limiter)

    async def get(self, key: str) -> int:
        return await run_steps_async(self._get(key), self.limiter)

    async def get_expiry(self, key: str) -> float:
        return await run_steps_async(self._get_expiry(key), self.limiter)

    async def check(self) -> bool:
        return await run_steps_async(self._check(), self.limiter)

    async def reset(self) -> int | None:
        return await run_steps_async(self._reset(), self.limiter)

    async def clear(self, key: str) -> None:
        await run_steps_async(self._clear(key), self.limiter)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await run_steps_async(self._acquire("sliding-log", key, limit, expiry, amount), self.limiter)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return await run_steps_async(self._moving(key, limit, expiry), self.limiter)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await run_steps_async(self._acquire("sliding-counter", key, limit, expiry, amount), self.limiter)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return await run_steps_async(self._sliding(key, expiry), self.limiter)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets a sliding window counter."""
        await run_steps_async(self._clear_sliding(key, expiry), self.limiter)
