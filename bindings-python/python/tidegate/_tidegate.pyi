# Made by scripts/stubs.py from the compiled module: `make stubs` writes it anew.

"""The compiled part of the package `tidegate`; import its names from there."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from os import PathLike
from typing import Any, Final, NoReturn, final

from ._decorator import Decorator
from ._hold import Holding

__all__ = [
    "__version__",
    "AsyncHold",
    "AsyncLimiter",
    "Attempt",
    "ClientIp",
    "Decision",
    "Desk",
    "Headers",
    "Hold",
    "Limit",
    "LimitState",
    "Limiter",
    "ManualClock",
    "Pending",
    "Policy",
    "Rollout",
    "Warning",
    "after_fork_in_child",
    "again",
    "anonymous",
    "hashed",
    "lint",
    "problem",
    "rollout",
    "status",
]

__version__: Final[str]

@final
class AsyncHold:
    """
    Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `async with`.
    """
    def __aenter__(self, /) -> Coroutine[Any, Any, AsyncHold]: ...
    def __aexit__(self, /, *_error: object) -> Coroutine[Any, Any, None]: ...
    def __repr__(self, /) -> str: ...
    @property
    def decision(self, /) -> Decision:
        """
        The Decision that let it in.
        """
    def release(self, /) -> Coroutine[Any, Any, None]:
        """
        Gives the units back; once, whoever calls it how often. It is on its way at once, and needs no waiting for.
        """
    @property
    def released(self, /) -> bool:
        """
        Whether it was given back.
        """

@final
class AsyncLimiter:
    """
    Checks limits from event loops without blocking them: what waits at the same moment travels to Redis as one call.

    The options are those of Limiter. It may be shared by event loops of several threads, and made before a fork::

        limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": 20/minute; 5/3s})
        if not await limiter.check("login", "alice"):
            ...

    A call is made when it is awaited. Whoever cancels one that is on its way does not learn whether it was charged.
    """
    def __aenter__(self, /) -> Coroutine[Any, Any, AsyncLimiter]: ...
    def __aexit__(self, /, *_error: object) -> Coroutine[Any, Any, None]: ...
    def __new__(
        cls,
        /,
        store: str | Iterable[str] | Rollout | None = None,
        *,
        policies: Mapping[str, Any] | None = None,
        prefix: str = "tg",
        timeout: float = 0.25,
        on_store_error: str = "local",
        deny_cache: float = 1.0,
        clock: ManualClock | None = None,
    ) -> AsyncLimiter: ...
    def __reduce__(self, /) -> NoReturn: ...
    def __repr__(self, /) -> str: ...
    def acquire(
        self, /, policy: str | Policy, key: str, cost: int = 1, timeout: float | None = None
    ) -> Coroutine[Any, Any, Decision]:
        """
        Waits until it is admitted, at most `timeout` seconds; a denied Decision when that would be too late.

        Those who wait for the same key are admitted in the order they came; whoever is cancelled leaves the line.
        """
    def block(self, /, policy: str | Policy, key: str, seconds: float | str) -> Coroutine[Any, Any, None]:
        """
        Denies the key for so many seconds (or "10m"), whatever its usage.
        """
    def charge(self, /, policy: str | Policy, key: str, cost: int) -> Coroutine[Any, Any, Decision]:
        """
        Consumes even past the limit: windows count it, buckets go into debt, `remaining` says 0.
        """
    def check(
        self, /, policy: str | Policy, key: str, cost: int = 1, meta: str | bytes | None = None
    ) -> Coroutine[Any, Any, Decision]:
        """
        Asks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a Policy.

        `meta` (str or bytes) is what the journal remembers of it. A denial is a Decision, never an error.
        """
    def check_all(self, /, entries: Iterable[tuple[str | Policy | int, ...]]) -> Coroutine[Any, Any, Decision]:
        """
        Checks several policies and keys, each (policy, key) or (policy, key, cost): all are charged, or none is.

        The Decision is the first refusal's, and has one for each entry in `decisions`.
        """
    def clear(self, /, policy: str | Policy, key: str) -> Coroutine[Any, Any, None]:
        """
        Forgets a key's usage and ends its block. Its journal stays.
        """
    def close(self, /) -> Coroutine[Any, Any, None]:
        """
        Ends the limiter; every later call raises ClosedError.
        """
    def counters(self, /) -> dict[str, int]:
        """
        How often what happened, for metrics: `asked` (operations sent to a shared store), `deny_cache` (denials repeated
        without asking), `fallback_open`, `fallback_closed`, `fallback_local`, `lost` (how often a store was given up),
        `withheld` (not sent meanwhile), `store_unavailable`, `store_timeout`, `store_rejected`. Not awaitable: it asks nobody.
        """
    @classmethod
    def from_file(
        cls,
        /,
        path: str | PathLike[str],
        store: str | Iterable[str] | Rollout | None = None,
        *,
        prefix: str = "tg",
        timeout: float = 0.25,
        on_store_error: str = "local",
        deny_cache: float = 1.0,
        clock: ManualClock | None = None,
    ) -> AsyncLimiter:
        """
        The limiter a policy file describes: YAML, TOML or JSON. `store` is used instead of the file's.
        """
    def hold(self, /, policy: str | Policy, key: str, cost: int = 1) -> Holding:
        """
        Takes units of a "concurrency" limit: renewed while the AsyncHold lives, given back by `release` or at the end of
        `async with`. Raises RateLimited when there is no room::

            async with limiter.hold("exports", "alice") as hold:
                ...
        """
    def journal(self, /, policy: str | Policy, key: str) -> Coroutine[Any, Any, list[Attempt]]:
        """
        The newest attempts, newest first, of a policy with a `journal`.
        """
    def limit(
        self, /, policy: str | Policy, *, key: str | Callable[..., str], cost: int | Callable[..., int] | None = None
    ) -> Decorator:
        """
        A decorator: a call of the function is a check, and raises RateLimited when that is denied.

        `key` is a function of the call's arguments, or one text for all of them; `cost` a number (1 when nothing is said)
        or such a function. A function that is not async is limited on the thread that calls it::

            @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
            async def send_mail(user, text): ...

        A policy with a "concurrency" limit is held while the function runs. What a leaky-bucket lets in goes when it is
        its turn.
        """
    def peek(self, /, policy: str | Policy, key: str, cost: int = 1) -> Coroutine[Any, Any, Decision]:
        """
        Asks without consuming.
        """
    def ping(self, /) -> Coroutine[Any, Any, None]:
        """
        Returns when the store answers; raises StoreError, which says why, when it does not.
        """
    def policy(self, /, policy: str | Policy) -> Policy:
        """
        The policy that a name or a notation means to this limiter now. Not awaitable: it asks nobody.
        """
    def refund(self, /, policy: str | Policy, key: str, cost: int = 1) -> Coroutine[Any, Any, None]:
        """
        Gives units back; never above full, never creates credit.
        """
    def reload(self, /) -> Coroutine[Any, Any, None]:
        """
        Takes the changed policy file, as a whole or not at all.
        """
    def set_rollout(self, /, percent: float) -> None:
        """
        Changes which share of the keys uses the new store of a `rollout`, in percent; at once. Not awaitable: it asks nobody.
        """
    def settle(self, /, decision: Decision, actual_cost: int) -> Coroutine[Any, Any, None]:
        """
        After the work: charges or refunds the difference between what a check consumed and what it should have.
        """
    def to_blocking(self, /) -> Limiter:
        """
        The same limiter for threads: policies, usage and connections are shared.
        """
    def unblock(self, /, policy: str | Policy, key: str) -> Coroutine[Any, Any, None]:
        """
        Ends a block.
        """
    def waiting(self, /, policy: str | Policy, key: str) -> int:
        """
        How many of this limiter's callers wait for a key in `acquire`. Not awaitable: it asks nobody.
        """

@final
class Attempt:
    """
    One attempt that a journal remembers.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def allowed(self, /) -> bool:
        """
        Whether it was allowed.
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        The same as a dict.
        """
    @property
    def at(self, /) -> float:
        """
        When, in seconds since 1970.
        """
    @property
    def cost(self, /) -> int:
        """
        The units it asked for.
        """
    @property
    def meta(self, /) -> str | None:
        """
        What the caller said of it, as text; bytes that are no UTF-8 are shown as `\\xff`.
        """
    @property
    def meta_bytes(self, /) -> bytes | None:
        """
        What the caller said of it, byte for byte.
        """

@final
class ClientIp:
    """
    Derives the key client_ip.
    """
    def __new__(cls, /, trusted_proxies: Iterable[object] | None = None, ipv6_prefix: int = 64) -> ClientIp: ...
    def key(self, /, peer: str | None, forwarded: list[bytes] | None = None) -> str:
        """
        The key of a request, from its peer's address and the lines of X-Forwarded-For.
        """
    @property
    def reads_forwarded(self, /) -> bool:
        """
        Whether X-Forwarded-For matters at all.
        """

@final
class Decision:
    """
    The answer to a check, as data. A denial is a Decision, never an error; it is truthy exactly when allowed.

    Times are seconds.
    """
    def __bool__(self, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __reduce__(self, /) -> tuple[object, ...]: ...
    def __repr__(self, /) -> str: ...
    @property
    def allowed(self, /) -> bool:
        """
        May it go?
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        The same as a dict of plain values, ready for JSON.
        """
    @property
    def cost(self, /) -> int:
        """
        The units that were asked for.
        """
    @property
    def decisions(self, /) -> tuple[Decision, ...]:
        """
        Of check_all: one Decision for each entry. Empty otherwise.
        """
    @property
    def delay(self, /) -> float:
        """
        For a leaky-bucket: wait so many seconds before going.
        """
    @property
    def key(self, /) -> str:
        """
        The key.
        """
    @property
    def limit(self, /) -> int:
        """
        The most units the limit that binds ever admits at once. The limit that binds is the one that refused, else the
        one with least left in proportion.
        """
    @property
    def limits(self, /) -> tuple[LimitState, ...]:
        """
        What each limit says, in the order of the policy.
        """
    @property
    def policy(self, /) -> str:
        """
        The policy's name.
        """
    @property
    def remaining(self, /) -> int:
        """
        Units the limit that binds would admit now.
        """
    @property
    def reset_after(self, /) -> float:
        """
        Seconds until the limit that binds is as if unused.
        """
    @property
    def reset_at(self, /) -> float:
        """
        The moment the limit that binds is as if unused, in seconds since 1970; the same between calls.
        """
    @property
    def retry_after(self, /) -> float | None:
        """
        When the same check is admitted if nobody else touches the key, in seconds: 0 when allowed, None for never.
        """
    @property
    def shadow(self, /) -> bool:
        """
        Whether a shadow policy would have denied.
        """
    @property
    def source(self, /) -> str:
        """
        Who answered: store, "deny-cache", "lease" or "fallback".
        """

@final
class Desk:
    """
    One policy at one place, made ready when the place was written.
    """
    def __new__(
        cls, /, policy: str | Policy, prefix: str, cost: int, headers: Headers, ip: ClientIp | None = None
    ) -> Desk:
        """
        With an `ip` those who ask are known by their peer's address, without one by their key.
        """
    def ask(self, /, limiter: Limiter, who: str) -> list[tuple[str, str]] | Decision:
        """
        Asks on this thread: the fields of the answer when it may go, else the Decision.
        """
    def post(self, /, limiter: AsyncLimiter, who: str) -> Decision | Coroutine[Any, Any, Decision]:
        """
        Asks from an event loop: the Decision when it is at hand, else what is to be awaited for it.
        """

@final
class Headers:
    """
    Which fields announce the limits; chosen once, so that no answer reads the option again.
    """
    def __new__(cls, /, name: str) -> Headers: ...
    def raw(self, /, *decisions: Decision) -> list[tuple[bytes, bytes]]:
        """
        The same as ASGI has them: bytes, names in small letters.
        """
    def text(self, /, *decisions: Decision) -> list[tuple[str, str]]:
        """
        The fields of an answer that these Decisions were made for, as text.
        """

@final
class Hold:
    """
    Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `with`.
    """
    def __enter__(self, /) -> Hold: ...
    def __exit__(self, /, *_error: object) -> None: ...
    def __repr__(self, /) -> str: ...
    @property
    def decision(self, /) -> Decision:
        """
        The Decision that let it in.
        """
    def release(self, /) -> None:
        """
        Gives the units back; once, whoever calls it how often.
        """
    @property
    def released(self, /) -> bool:
        """
        Whether it was given back.
        """

@final
class Limit:
    """
    One limit: `count` units per `period`, counted by an algorithm.

    `period` is a number of seconds or a text such as "10m" or "month"; for "concurrency" it is the holds' ttl and may be
    left out. Only buckets have a `burst`, only token-bucket has `initial`, only sliding-window has a `precision`.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        algorithm: str,
        count: int,
        period: float | str | None = None,
        *,
        burst: int | None = None,
        initial: int | None = None,
        precision: int | None = None,
    ) -> Limit: ...
    def __reduce__(self, /) -> tuple[object, ...]: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        The notation, such as "gcra 100/s burst 200".
        """
    @property
    def algorithm(self, /) -> str:
        """
        How it counts: gcra, "sliding-window", …
        """
    @property
    def burst(self, /) -> int | None:
        """
        The burst that was asked for.
        """
    @property
    def capacity(self, /) -> int:
        """
        The most units it ever admits at once.
        """
    @property
    def count(self, /) -> int:
        """
        Units per period.
        """
    @property
    def initial(self, /) -> int | None:
        """
        The tokens a token-bucket starts with, when that was said.
        """
    @property
    def period(self, /) -> float:
        """
        The period in seconds; months of 30 and years of 360 days. The holds' ttl for "concurrency".
        """
    @property
    def precision(self, /) -> int | None:
        """
        The granules of a sliding-window, else None.
        """

@final
class LimitState:
    """
    What one limit of a policy says in a Decision.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def algorithm(self, /) -> str:
        """
        How it counts: gcra, "sliding-window", …
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        The same as a dict.
        """
    @property
    def exceeded(self, /) -> bool:
        """
        Whether it refused.
        """
    @property
    def limit(self, /) -> int:
        """
        The most units it ever admits at once.
        """
    @property
    def period(self, /) -> float:
        """
        Its period in seconds; the ttl of the holds for "concurrency".
        """
    @property
    def remaining(self, /) -> int:
        """
        Units it would admit now.
        """
    @property
    def reset_after(self, /) -> float:
        """
        Seconds until it is as if unused.
        """
    @property
    def retry_after(self, /) -> float | None:
        """
        When it would admit the cost, in seconds: 0 when it does now, None for never.
        """

@final
class Limiter:
    """
    Checks limits on the calling thread.

    store: where usage lives: memory://, which is meant when nothing is said, a Redis URL, a list of
    them that share the keys, or a `rollout`.
    policies: by name; a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
    prefix: what every key in Redis begins with.
    timeout: the longest a call may wait for the store, in seconds.
    on_store_error: raise, "open", "closed" or "local": what a check answers when the store fails.
    deny_cache: for how many seconds a denied key may be denied without asking the store; 0 is off.
    clock: a ManualClock, for tests.

    It may be shared by threads, and made before a fork::

        limiter = Limiter(policies={"login": 20/minute; 5/3s})
        if not limiter.check("login", "alice"):
            ...
    """
    def __enter__(self, /) -> Limiter: ...
    def __exit__(self, /, *_error: object) -> None: ...
    def __new__(
        cls,
        /,
        store: str | Iterable[str] | Rollout | None = None,
        *,
        policies: Mapping[str, Any] | None = None,
        prefix: str = "tg",
        timeout: float = 0.25,
        on_store_error: str = "local",
        deny_cache: float = 1.0,
        clock: ManualClock | None = None,
    ) -> Limiter: ...
    def __reduce__(self, /) -> NoReturn: ...
    def __repr__(self, /) -> str: ...
    def acquire(self, /, policy: str | Policy, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """
        Waits until it is admitted, at most `timeout` seconds; a denied Decision when that would be too late.

        Those who wait for the same key are admitted in the order they came.
        """
    def block(self, /, policy: str | Policy, key: str, seconds: float | str) -> None:
        """
        Denies the key for so many seconds (or "10m"), whatever its usage.
        """
    def charge(self, /, policy: str | Policy, key: str, cost: int) -> Decision:
        """
        Consumes even past the limit: windows count it, buckets go into debt, `remaining` says 0.
        """
    def check(self, /, policy: str | Policy, key: str, cost: int = 1, meta: str | bytes | None = None) -> Decision:
        """
        Asks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a Policy.

        `meta` (str or bytes) is what the journal remembers of it. A denial is a Decision, never an error.
        """
    def check_all(self, /, entries: Iterable[tuple[str | Policy | int, ...]]) -> Decision:
        """
        Checks several policies and keys, each (policy, key) or (policy, key, cost): all are charged, or none is.

        The Decision is the first refusal's, and has one for each entry in `decisions`.
        """
    def clear(self, /, policy: str | Policy, key: str) -> None:
        """
        Forgets a key's usage and ends its block. Its journal stays.
        """
    def close(self, /) -> None:
        """
        Ends the limiter; every later call raises ClosedError.
        """
    def counters(self, /) -> dict[str, int]:
        """
        How often what happened, for metrics: `asked` (operations sent to a shared store), `deny_cache` (denials repeated
        without asking), `fallback_open`, `fallback_closed`, `fallback_local`, `lost` (how often a store was given up),
        `withheld` (not sent meanwhile), `store_unavailable`, `store_timeout`, `store_rejected`.
        """
    @classmethod
    def from_file(
        cls,
        /,
        path: str | PathLike[str],
        store: str | Iterable[str] | Rollout | None = None,
        *,
        prefix: str = "tg",
        timeout: float = 0.25,
        on_store_error: str = "local",
        deny_cache: float = 1.0,
        clock: ManualClock | None = None,
    ) -> Limiter:
        """
        The limiter a policy file describes: YAML, TOML or JSON. `store` is used instead of the file's.
        """
    def hold(self, /, policy: str | Policy, key: str, cost: int = 1) -> Hold:
        """
        Takes units of a "concurrency" limit: renewed while the Hold lives, given back by `release` or at the end of
        `with`. Raises RateLimited when there is no room.
        """
    def journal(self, /, policy: str | Policy, key: str) -> list[Attempt]:
        """
        The newest attempts, newest first, of a policy with a `journal`.
        """
    def limit(
        self, /, policy: str | Policy, *, key: str | Callable[..., str], cost: int | Callable[..., int] | None = None
    ) -> Decorator:
        """
        A decorator: a call of the function is a check, and raises RateLimited when that is denied.

        `key` is a function of the call's arguments, or one text for all of them; `cost` a number (1 when nothing is said) or such
        a function. An async function is limited without blocking its event loop::

            @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
            def send_mail(user, text): ...

        A policy with a "concurrency" limit is held while the function runs. What a leaky-bucket lets in goes when it is
        its turn.
        """
    def peek(self, /, policy: str | Policy, key: str, cost: int = 1) -> Decision:
        """
        Asks without consuming.
        """
    def ping(self, /) -> None:
        """
        Returns when the store answers; raises StoreError, which says why, when it does not.
        """
    def policy(self, /, policy: str | Policy) -> Policy:
        """
        The policy that a name or a notation means to this limiter now.
        """
    def refund(self, /, policy: str | Policy, key: str, cost: int = 1) -> None:
        """
        Gives units back; never above full, never creates credit.
        """
    def reload(self, /) -> None:
        """
        Takes the changed policy file, as a whole or not at all.
        """
    def set_rollout(self, /, percent: float) -> None:
        """
        Changes which share of the keys uses the new store of a `rollout`, in percent; at once.
        """
    def settle(self, /, decision: Decision, actual_cost: int) -> None:
        """
        After the work: charges or refunds the difference between what a check consumed and what it should have.
        """
    def to_async(self, /) -> AsyncLimiter:
        """
        The same limiter for event loops: policies, usage and connections are shared.
        """
    def unblock(self, /, policy: str | Policy, key: str) -> None:
        """
        Ends a block.
        """
    def waiting(self, /, policy: str | Policy, key: str) -> int:
        """
        How many of this limiter's callers wait for a key in `acquire`.
        """

@final
class ManualClock:
    """
    A clock for tests: give it to a limiter, and its time decides instead of the store's.

    Times are seconds since 1970. It stands still until it is told to move::

        clock = ManualClock()
        limiter = Limiter(clock=clock)
        assert limiter.check("1/minute", "alice")
        assert not limiter.check("1/minute", "alice")
        clock.advance(63)
        assert limiter.check("1/minute", "alice")
    """
    def __new__(cls, /, now: float = 1700000000.0) -> ManualClock: ...
    def __reduce__(self, /) -> NoReturn: ...
    def __repr__(self, /) -> str: ...
    def advance(self, /, seconds: float) -> None:
        """
        Moves the clock forward by so many seconds. Whoever waits for time to pass is woken.
        """
    def now(self, /) -> float:
        """
        The time, in seconds since 1970.
        """
    def set(self, /, now: float) -> None:
        """
        Sets the clock to a time since 1970; it may go back.
        """

@final
class Pending:
    """
    A call that is made when it is awaited, like that of any `async def`.

    An answer that is at hand is returned without a turn of the event loop.
    """
    def __await__(self, /) -> Generator[Any, Any, Any]: ...
    def __bool__(self, /) -> bool:
        """
        A call that was not awaited is no answer, and would let everybody through.
        """
    def __iter__(self, /) -> Pending: ...
    def __next__(self, /) -> Any: ...
    def close(self, /) -> None:
        """
        As of any coroutine.
        """
    def send(self, /, value: Any) -> Any:
        """
        As of any coroutine.
        """
    def throw(self, /, *error: Any) -> Any:
        """
        As of any coroutine.
        """

@final
class Policy:
    """
    A named, immutable list of limits that must all admit, plus options.

    `limits` is a notation such as "20/minute; 5/3s", a Limit, or a list of both. Without a `name` a policy is known by
    its notation, so that the same limits written in two places are the same policy.

    on_store_error: raise, "open", "closed" or "local"; overrides the limiter's choice.
    shadow: evaluate and count, but never deny.
    block_for: once denied, the key stays denied this long; seconds, or a text such as "10m".
    count_denied: charge denied checks too.
    journal: remember the newest so many attempts with their metadata.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        limits: str | Limit | Iterable[str | Limit],
        *,
        name: str | None = None,
        on_store_error: str | None = None,
        shadow: bool = False,
        block_for: float | str | None = None,
        count_denied: bool = False,
        journal: int = 0,
    ) -> Policy: ...
    def __reduce__(self, /) -> tuple[object, ...]: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        The notation of its limits.
        """
    @property
    def block_for(self, /) -> float | None:
        """
        How long a key stays denied once it was, in seconds; None is no longer than its limits say.
        """
    @property
    def count_denied(self, /) -> bool:
        """
        Whether denied checks are charged, too.
        """
    @property
    def journal(self, /) -> int:
        """
        How many attempts are remembered.
        """
    @property
    def limits(self, /) -> tuple[Limit, ...]:
        """
        The limits, in the order they were written.
        """
    @property
    def name(self, /) -> str:
        """
        The name, or the notation when none was given.
        """
    @property
    def on_store_error(self, /) -> str | None:
        """
        What a check answers when the store fails; None is the limiter's choice.
        """
    @property
    def shadow(self, /) -> bool:
        """
        Whether it only counts and never denies.
        """

@final
class Rollout:
    """
    Two stores and a share, to be given to a limiter as its store.
    """
    def __repr__(self, /) -> str: ...
    @property
    def percent(self, /) -> float:
        """
        The share of the keys that use the new store, from 0 to 100.
        """

@final
class Warning:
    """
    Something in a policy file that is valid and probably not what its author meant.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        All of it on one line.
        """
    @property
    def column(self, /) -> int | None:
        """
        The column, from 1.
        """
    @property
    def file(self, /) -> str | None:
        """
        The file.
        """
    @property
    def line(self, /) -> int | None:
        """
        The line, from 1.
        """
    @property
    def message(self, /) -> str:
        """
        What is odd, and what to do about it.
        """
    @property
    def policy(self, /) -> str:
        """
        The policy's name.
        """

def after_fork_in_child() -> None:
    """
    Registered with `os.register_at_fork`: what belongs to the parent is not used in the child.
    """

def again(
    policy: Policy, key: str, cost: int, charged: int, numbers: tuple[int, ...], decisions: tuple[Decision, ...]
) -> Decision:
    """
    A Decision that was sent somewhere, put together from what its `__reduce__` said.
    """

def anonymous(client: str) -> str:
    """
    The key of somebody who did not say who they are.
    """

def hashed(secret: str) -> str:
    """
    A digest to use as a key instead of a secret.
    """

def lint(path: str | PathLike[str]) -> list[Warning]:
    """
    Reads a policy file and says what in it probably does not do what it seems to.

    An empty list is a clean file. A file that is not valid raises PolicyError.
    """

def problem(decision: Decision) -> str:
    """
    The body of a refusal: application/problem+json.
    """

def rollout(old_url: str, new_url: str, percent: float) -> Rollout:
    """
    From an old store to a new one: `percent` of the keys use the new one, always the same ones.

    Give it to a limiter as its store; `limiter.set_rollout(percent)` changes the share at once. What was used in the
    other store is not carried along::

        limiter = Limiter(rollout("redis://old", "redis://new", 5))
    """

def status(decision: Decision) -> int:
    """
    The status of the answer: 200, 429 or 503.
    """
