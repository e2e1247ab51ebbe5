"""Storages for the `limits` package. With them, Flask-Limiter, slowapi and others built on it run on Tidegate.

    import tidegate.limits                                   # registers the schemes

    Limiter(get_remote_address, app=app, storage_uri="tidegate+redis://127.0.0.1:6379/0")

A scheme is `tidegate+` and a scheme of Tidegate. For `limits.aio` it begins with `async+tidegate+`. The storage options
are those of a limiter: prefix (or key_prefix), timeout, on_store_error, deny_cache. Fixed windows are `fixed-window`,
moving windows `sliding-log`, and sliding window counters `sliding-counter`.

A store that cannot be reached raises, as with the storages of `limits`, so that the `in_memory_fallback` and the
`swallow_errors` of Flask-Limiter and slowapi work. `on_store_error="local"` leaves the fallback to Tidegate. With
`wrap_exceptions` the error is the StorageError of `limits`.

These storages differ from those of `limits`. Only the store's clock decides. Sliding window counters are aligned to the
clock, as in its memory storage, and reset when their estimate is 0. A fractional cost is rounded up. A pickled storage
of `memory://` comes back empty. `reset` clears the keys that this storage object remembers: the newest 100,000 that
have at most 200 characters. To clear everything under the prefix, also the usage that others count there, call
`storage.storage.clear_all()`.
"""

from __future__ import annotations

import functools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from limits import aio, storage
from limits.limits import GRANULARITIES

from ._shown import shown
from ._tidegate import AsyncLimiter, Decision, Limit, Limiter, Policy
from .errors import ConfigError, CostError, TidegateError
from .web.processes import warn_of_memory
from .web.steps import Steps, run_steps, run_steps_async

__all__ = ["AsyncTidegateStorage", "TidegateStorage"]

P = ParamSpec("P")
T = TypeVar("T")

_TOPOLOGIES = ("", "+sentinel", "+cluster")
_SERVERS = [server + topology for server in ("redis", "rediss", "valkey", "valkeys") for topology in _TOPOLOGIES]
_OTHERS = ("memory", "file", "postgresql", "postgres", "unix", "redis+unix", "valkey+unix")
SCHEMES = [f"tidegate+{one}" for one in (*_OTHERS, *_SERVERS)]
# A storage of `limits` counts without a limit. Its count is the part of this largest limit that is used up.
MAX_COUNT = 10**12
# The number of keys with a remembered expiry, and the length of the longest. Any other expiry is read from the key.
MAX_EXPIRIES = 100_000
MAX_REMEMBERED_KEY = 200
# How often both counters of a sliding window are read at most, because its window may end meanwhile.
MAX_ATTEMPTS = 3


@functools.lru_cache(maxsize=1024)
def _policy(algorithm: str, count: int, expiry: int) -> Policy:
    # The count is not part of a limit's identity, so charges with one count are seen with another.
    return Policy(Limit(algorithm, count, period=float(expiry)), name=f"limits.{algorithm}")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _whole(amount: float) -> int:
    """Returns an amount rounded up to whole units. Leaves inf and nan to the limiter, which refuses them."""
    if not isinstance(amount, (int, float)) and not hasattr(amount, "__index__"):
        raise CostError(
            f"a cost cannot be {shown(amount)}: it must be a number, since the limits of this package count no units; "
            'policies of tidegate do, such as "100 tokens/minute"'
        )
    if isinstance(amount, float) and math.isfinite(amount):
        return math.ceil(amount)
    return amount  # type: ignore[return-value]


class _StorageSteps:
    """The calls of both storages, as steps."""

    _limiter_class: ClassVar[Any]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        self._expiries: OrderedDict[str, int] = OrderedDict()
        self._made_from = (uri, wrap_exceptions, dict(options))
        if "key_prefix" in options:
            if "prefix" in options:
                raise ConfigError("prefix and key_prefix mean the same: give one of them", "config_invalid")
            options["prefix"] = options.pop("key_prefix")
        options.setdefault("on_store_error", "raise")
        self.key_prefix: str = options.get("prefix", "tg")
        super().__init__(uri, wrap_exceptions)  # type: ignore[call-arg]
        # Some callers remove the first part of the URI.
        self.limiter = self._limiter_class(uri.removeprefix("async+").removeprefix("tidegate+"), **options)
        warn_of_memory(self.limiter)

    @property
    def storage(self) -> Any:
        """The limiter. In the storages of `limits`, `storage` is the client."""
        return self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """The exceptions that `wrap_exceptions` wraps."""
        return TidegateError

    def __copy__(self) -> Any:
        # A copy counts with the original, as a copied client does.
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        uri, wrap_exceptions, options = self._made_from
        made = functools.partial(type(self), uri, wrap_exceptions=wrap_exceptions, **options)
        return made, (), {"_expiries": self._expiries}

    def _remember(self, key: str, expiry: int) -> None:
        if len(key) > MAX_REMEMBERED_KEY:
            return
        self._expiries[key] = expiry
        if len(self._expiries) > MAX_EXPIRIES:
            self._expiries.popitem(last=False)

    def _expiry(self, key: str) -> int | None:
        """Returns the expiry of a key, read from its end (/count/multiples/unit) if this process never used it."""
        expiry = self._expiries.get(key)
        if expiry is not None:
            return expiry
        *_, multiples, name = ("", "", *key.split("/"))
        granularity = GRANULARITIES.get(name)
        if granularity is None or not multiples.isdigit():
            return None
        return granularity.GRANULARITY.seconds * int(multiples)

    def _incr(self, key: str, expiry: int, amount: int = 1) -> Steps[int]:
        """Counts an amount, and returns the count of the window."""
        self._remember(key, expiry)
        amount = _whole(amount)
        if amount == 0:
            return (yield from self._get(key))
        decision: Decision = yield "charge", (_policy("fixed-window", MAX_COUNT, expiry), key, amount)
        return MAX_COUNT - decision.remaining

    def _fixed(self, key: str) -> Steps[Decision | None]:
        expiry = self._expiry(key)
        if expiry is None:
            return None
        decision: Decision = yield "peek", (_policy("fixed-window", MAX_COUNT, expiry), key)
        return decision

    def _get(self, key: str) -> Steps[int]:
        """Returns the count of the window."""
        decision = yield from self._fixed(key)
        return 0 if decision is None else MAX_COUNT - decision.remaining

    def _get_expiry(self, key: str) -> Steps[float]:
        """Returns when the window ends, in seconds since 1970."""
        decision = yield from self._fixed(key)
        return time.time() if decision is None else decision.reset_at

    def _clear(self, key: str) -> Steps[None]:
        """Clears the usage of a key."""
        expiry = self._expiry(key)
        if expiry is None:
            return
        for algorithm in ("fixed-window", "sliding-log", "sliding-counter"):
            yield "clear", (_policy(algorithm, MAX_COUNT, expiry), key)

    def _reset(self) -> Steps[int]:
        """Clears the keys that this storage remembers, and returns their number."""
        keys = list(self._expiries)
        for key in keys:
            yield from self._clear(key)
        self._expiries.clear()
        return len(keys)

    def _check(self) -> Steps[bool]:
        """Returns True if the store answers."""
        try:
            yield "ping", ()
        except TidegateError:
            return False
        return True

    def _acquire(self, algorithm: str, key: str, limit: int, expiry: int, amount: float) -> Steps[bool]:
        amount = _whole(amount)
        if amount > limit:
            return False
        self._remember(key, expiry)
        if amount == 0:
            used: Decision = yield "peek", (_policy(algorithm, MAX_COUNT, expiry), key)
            return MAX_COUNT - used.remaining <= limit
        decision: Decision = yield "check", (_policy(algorithm, limit, expiry), key, amount)
        return decision.allowed

    def _acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Steps[bool]:
        """Adds an amount to a moving window if the limit allows it, and returns True then."""
        return self._acquire("sliding-log", key, limit, expiry, amount)

    def _acquire_sliding(self, key: str, limit: int, expiry: int, amount: int = 1) -> Steps[bool]:
        """Adds an amount to a sliding window counter if the limit allows it, and returns True then."""
        return self._acquire("sliding-counter", key, limit, expiry, amount)

    def _moving(self, key: str, limit: int, expiry: int) -> Steps[tuple[float, int]]:
        """Returns when a moving window began, and the amount in it."""
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
        """Returns both counters and their times to live, from the moments at which the estimate falls."""
        period, policy = expiry * 1_000_000, _policy("sliding-counter", MAX_COUNT, expiry)
        for _ in range(MAX_ATTEMPTS):
            seen: Decision = yield "peek", (policy, key)
            now = _micros(seen.reset_at) - _micros(seen.reset_after)
            window, used = now - now % period, MAX_COUNT - seen.remaining
            next_window = window + period
            left = (next_window - now) / 1_000_000
            # Usage that falls to 0 only in the next window was counted in this one.
            falls = next_window + period - _micros(seen.reset_at)
            least, most = 0, 0
            if _micros(seen.reset_at) > next_window:
                # `falls` is (period - 1) // current.
                least, most = min((period - 1) // (falls + 1) + 1, used), min((period - 1) // max(falls, 1), used)
            if least < most:
                at = yield from self._falls_to(key, expiry, least - 1)
                if at is None or at - at % period != next_window:
                    continue
                most = min(round(least * period / max(next_window + period - at, 1)), used)
            current = most
            previous = rest = used - current
            if rest > 0:
                at = yield from self._falls_to(key, expiry, used - 1)
                if at is None or not window < at <= next_window:
                    continue
                previous = max(round(rest * period / max(next_window - at, 1)), rest)
            # A product of floats may be a little below the whole number that it stands for.
            ttl = left
            while previous and math.floor(previous * ttl / expiry + current) < used:
                ttl = math.nextafter(ttl, math.inf) if hasattr(math, "nextafter") else ttl + 1e-9
            return previous, ttl if previous else 0.0, current, left + expiry
        # Others charge the key between the reads, so the estimate stands for both counters.
        return 0, 0.0, used, left + expiry

    def _falls_to(self, key: str, expiry: int, units: int) -> Steps[int | None]:
        """Returns when the estimate falls to so many units, or None if it has already."""
        decision: Decision = yield "peek", (_policy("sliding-counter", MAX_COUNT, expiry), key, MAX_COUNT - units)
        if decision.allowed or decision.retry_after is None:
            return None
        now = _micros(decision.reset_at) - _micros(decision.reset_after)
        return now + _micros(decision.retry_after)

    def _clear_sliding(self, key: str, expiry: int) -> Steps[None]:
        """Clears a sliding window counter."""
        yield "clear", (_policy("sliding-counter", MAX_COUNT, expiry), key)


def _on_thread(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """Returns a method of a storage that takes these steps on the calling thread."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_steps(steps(self, *args, **kwargs), self.limiter)

    method.__doc__ = steps.__doc__
    return method


def _on_loop(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns a method that awaits these steps on an event loop."""

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_steps_async(steps(self, *args, **kwargs), self.limiter)

    method.__doc__ = steps.__doc__
    return method


class TidegateStorage(_StorageSteps, storage.Storage, storage.MovingWindowSupport, storage.SlidingWindowCounterSupport):
    """Tidegate as a storage of `limits`."""

    STORAGE_SCHEME: ClassVar[list[str] | None] = SCHEMES  # type: ignore[misc]
    _limiter_class = Limiter

    incr = _on_thread(_StorageSteps._incr)
    get = _on_thread(_StorageSteps._get)
    get_expiry = _on_thread(_StorageSteps._get_expiry)
    check = _on_thread(_StorageSteps._check)
    reset = _on_thread(_StorageSteps._reset)
    clear = _on_thread(_StorageSteps._clear)
    acquire_entry = _on_thread(_StorageSteps._acquire_entry)
    get_moving_window = _on_thread(_StorageSteps._moving)
    acquire_sliding_window_entry = _on_thread(_StorageSteps._acquire_sliding)
    get_sliding_window = _on_thread(_StorageSteps._sliding)
    clear_sliding_window = _on_thread(_StorageSteps._clear_sliding)


class AsyncTidegateStorage(
    _StorageSteps, aio.storage.Storage, aio.storage.MovingWindowSupport, aio.storage.SlidingWindowCounterSupport
):
    """Tidegate as a storage of `limits.aio`."""

    STORAGE_SCHEME: ClassVar[list[str] | None] = [f"async+{scheme}" for scheme in SCHEMES]  # type: ignore[misc]
    _limiter_class = AsyncLimiter

    incr = _on_loop(_StorageSteps._incr)
    get = _on_loop(_StorageSteps._get)
    get_expiry = _on_loop(_StorageSteps._get_expiry)
    check = _on_loop(_StorageSteps._check)
    reset = _on_loop(_StorageSteps._reset)
    clear = _on_loop(_StorageSteps._clear)
    acquire_entry = _on_loop(_StorageSteps._acquire_entry)
    get_moving_window = _on_loop(_StorageSteps._moving)
    acquire_sliding_window_entry = _on_loop(_StorageSteps._acquire_sliding)
    get_sliding_window = _on_loop(_StorageSteps._sliding)
    clear_sliding_window = _on_loop(_StorageSteps._clear_sliding)
