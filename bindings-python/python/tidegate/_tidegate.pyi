# Made by scripts/stubs.py from the compiled module: `make stubs` writes it anew.

"""The compiled part of the package `tidegate`; import its names from there."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import GenericAlias
from typing import Any, Final, Generic, Literal, NoReturn, final

from typing_extensions import Unpack

from ._decorator import Decorator
from ._hold import Holding
from ._options import LimiterOptions, LimiterSettings, Name, PolicyOptions
from .stores import AsyncKeyValueStore, KeyValueStore

__all__ = [
    "__version__",
    "Admission",
    "AsyncHold",
    "AsyncLimiter",
    "Attempt",
    "CallCoroutine",
    "ClientIp",
    "Decision",
    "Headers",
    "Hold",
    "Limit",
    "LimitState",
    "Limiter",
    "ManualClock",
    "NearLimit",
    "Observation",
    "OutgoingCall",
    "Override",
    "Policy",
    "PolicyUse",
    "PreparedCheck",
    "PreparedPolicy",
    "Rollout",
    "StoreChange",
    "TokenEstimate",
    "TokenEstimator",
    "UsageReader",
    "Warning",
    "after_fork_in_child",
    "anonymous",
    "before_exit",
    "costs_of_entries",
    "hashed",
    "lint",
    "metrics",
    "named",
    "nearest",
    "placed_key",
    "problem",
    "problem_without_store",
    "read_response",
    "restore_decision",
    "rollout",
    "run_command",
    "shared_cost",
    "status",
    "verify_store",
]

__version__: Final[str]

@final
class Admission:
    """
    The answer to the limits of a request. Its holds are given back by `release`, or when it is dropped.
    """
    @property
    def by_service(self, /) -> bool:
        """
        True if the service that a call goes to refuses it.
        """
    @property
    def decision(self, /) -> Decision:
        """
        The denial of a refused request. An admitted one has a Decision of all policies, in the order in which they were asked.
        """
    @property
    def delay(self, /) -> float:
        """
        How many seconds an admitted request waits before it is served.
        """
    @property
    def holds(self, /) -> bool:
        """
        True where anything is held.
        """
    @property
    def refused_by(self, /) -> int | None:
        """
        The place of the policy that refused, among those that were asked.
        """
    def release(self, /, places: Sequence[int] | None = None) -> None:
        """
        Gives back what is held for the policies at these places, or all that is held.
        """
    @property
    def steps(self, /) -> list[tuple[bool, Decision, int, int]]:
        """
        In which steps the store was asked, where that was to be recorded: whether it was a hold, its Decision, and when it began and ended,
        in nanoseconds from the begin of the first.
        """
    @property
    def waits(self, /) -> bool:
        """
        True if a call that goes out is not refused yet, because it can wait and ask again.
        """

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
        The Decision that admitted it.
        """
    @property
    def lost(self, /) -> bool:
        """
        True if others may have the units now: the store did not have the hold at a renewal, or no
        renewal has succeeded for its ttl. It stays true. Tidegate logs and counts a failed renewal, and
        tries again. If it succeeds in time, the hold is not lost.
        """
    def release(self, /) -> Coroutine[Any, Any, None]:
        """
        Gives the units back, at once and also when it is not awaited. Further calls have no effect.
        """
    @property
    def released(self, /) -> bool:
        """
        True if the units went back.
        """
    def settle(self, /, actual_cost: int | Mapping[str, int]) -> Coroutine[Any, Any, None]:
        """
        After the work: charges or refunds the difference between what the other limits were charged and the actual cost, once: a number, or
        numbers by the names of units. Those that it does not name stay as they are, and so does what is held.
        """

@final
class AsyncLimiter(Generic[Name]):
    """
    Checks limits from event loops without blocking them. Checks that wait at the same moment travel to Redis as one call.

    The options are those of Limiter. Event loops of several threads may share it, and you may make it before a fork::

        limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": "20/minute; 5/3s"})
        if not await limiter.check("login", "alice"):
            ...

    A call is made when you await it. If you cancel it in flight, it may or may not have been charged.
    """
    def __aenter__(self, /) -> Coroutine[Any, Any, AsyncLimiter[Name]]: ...
    def __aexit__(self, /, *_error: object) -> Coroutine[Any, Any, None]: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(
        cls,
        /,
        store: str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None = None,
        *,
        policies: Mapping[Name, Any] | None = None,
        **options: Unpack[LimiterSettings],
    ) -> AsyncLimiter[Name]: ...
    def __reduce__(self, /) -> NoReturn: ...
    def __repr__(self, /) -> str: ...
    def _admit(
        self,
        /,
        asked: list[tuple[PreparedPolicy, str, int | Mapping[str, int], str | bytes | None, str | None, str | None]],
        records_steps: bool = False,
    ) -> Coroutine[Any, Any, Admission]:
        """
        Asks the policies of a request, each (prepared, key, cost, meta, priority, method). The units of a concurrency limit are
        held. With `records_steps` the answer has the steps in which the store was asked.
        """
    @property
    def _generation(self, /) -> int:
        """
        Another number after each `reload`.
        """
    @property
    def _is_local(self, /) -> bool:
        """
        True if usage lives in this process alone.
        """
    def _learn(
        self, /, call: OutgoingCall, observations: list[Observation], decision: Decision
    ) -> Coroutine[Any, Any, None]:
        """
        Learns the limits in the response to a call. The response stands even if they cannot be learned.
        """
    def _refused_since(self, /, call: OutgoingCall, decision: Decision) -> Coroutine[Any, Any, Decision | None]:
        """
        The refusal of the service since that Decision, or None.
        """
    def _samples(self, /, name: str | None = None) -> str:
        """
        The values of one metric, or of all, as JSON.
        """
    def _turn(
        self, /, call: OutgoingCall, timeout: float | None, announces: bool = False
    ) -> Coroutine[Any, Any, Admission]:
        """
        Waits until a call may go out. If the answer `waits`, the caller waits for as long as its Decision says, and asks again.
        With `announces` it also hears of the wait for its own policy, and asks again at once, without `announces`.
        """
    def _use_policy(self, /, policy: Name | Policy, by: str) -> PolicyUse:
        """
        Registers a use of a policy by its name, as long as the PolicyUse exists. `reload` refuses to drop such a policy.
        """
    def acquire(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        timeout: float | timedelta | None = None,
        meta: str | bytes | None = None,
        priority: str | None = None,
    ) -> Coroutine[Any, Any, Decision]:
        """
        Waits until the call is admitted, at most `timeout` seconds. The Decision is a denial if that would be too late.

        Calls that wait for the same key are admitted in their order.
        One that is cancelled leaves the queue.
        """
    def block(self, /, policy: Name | Policy, key: str, seconds: float | str | timedelta) -> Coroutine[Any, Any, None]:
        """
        Denies the key for this number of seconds (or "10m"), whatever its usage is.
        """
    def charge(
        self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int]
    ) -> Coroutine[Any, Any, Decision]:
        """
        Consumes even beyond the limit: windows count it, buckets go into debt, `remaining` is 0.
        """
    def check(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        meta: str | bytes | None = None,
        partial: bool = False,
        priority: str | None = None,
    ) -> Coroutine[Any, Any, Decision]:
        """
        Checks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a
        Policy.

        The journal remembers `meta` (str or bytes). A denial is a Decision, never an error. With `partial` it takes as
        many units as are left, up to `cost`: see `granted`. With `priority`, a class of the policy's `priorities`, a part
        of each limit stays free.
        """
    def check_all(
        self,
        /,
        entries: Iterable[tuple[str | Policy | int | Mapping[str, int] | bytes | None, ...]],
        *,
        partial: bool = False,
    ) -> Coroutine[Any, Any, Decision]:
        """
        Checks several policies and keys, each (policy, key), (policy, key, cost), (policy, key, cost, meta) or
        (policy, key, cost, meta, priority), and charges all or none.

        The Decision has the fields of the first denial, if there is one, and in `decisions` a Decision for each entry.
        It refuses `partial`, because it charges all or nothing.
        """
    def clear(self, /, policy: Name | Policy, key: str) -> Coroutine[Any, Any, None]:
        """
        Forgets the usage of a key and ends its block. Its journal stays.
        """
    def clear_all(self, /) -> Coroutine[Any, Any, None]:
        """
        Forgets all usage, blocks and journals under the prefix, for all policies and keys.
        """
    def close(self, /) -> Coroutine[Any, Any, None]:
        """
        Closes the limiter. Calls that wait, and all later calls, raise ClosedError. Turns, holds and leased units go back.
        """
    def counters(self, /) -> dict[str, int]:
        """
        The `counters` of `stats()` alone: events of stores, leases, fallbacks and holds.
        Not awaitable: it needs no store.
        """
    @classmethod
    def from_file(
        cls,
        /,
        path: str | PathLike[str],
        store: str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None = None,
        **options: Unpack[LimiterOptions],
    ) -> AsyncLimiter[str]:
        """
        The limiter that a policy file describes: YAML, TOML or JSON. `store` and `prefix` replace those of the file.

        Its policies are those of the file and of `policies`. The other options are those of the class.
        """
    def hold(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        timeout: float | timedelta | None = 0.0,
        priority: str | None = None,
        meta: str | bytes | None = None,
    ) -> Holding:
        """
        Takes units of a "concurrency" limit: renewed while the AsyncHold lives, given back by `release` or at the end of
        `async with`. Waits for room at most `timeout` seconds, in the line of all who wait for the key; None is for as long as it
        takes. Raises RateLimited when there is none::

            async with limiter.hold("exports", "alice") as hold:
                ...
        """
    def journal(self, /, policy: Name | Policy, key: str) -> Coroutine[Any, Any, list[Attempt]]:
        """
        The newest attempts, newest first. The policy needs a `journal`.
        """
    def limit(
        self,
        /,
        policy: Name | Policy,
        *,
        key: str | Callable[..., str],
        cost: int | Mapping[str, int] | Callable[..., int | Mapping[str, int]] | None = None,
        priority: str | Callable[..., str | None] | None = None,
    ) -> Decorator:
        """
        Returns a decorator. Each call of the function is checked first, and raises RateLimited if it is denied.

        `key` is a function of the call's arguments, or a text. `cost` is a number (1), numbers by units, or a function of these.
        `priority` is the name of a class of calls, or a function that returns one or None.
        A policy with a "concurrency" limit is held while the function runs. With a leaky-bucket, the function runs after the delay.

        A function that is not async is limited on the thread that calls it::

            @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
            async def send_mail(user, text): ...
        """
    def observe(
        self,
        /,
        policy: Name | Policy,
        key: str,
        observation: Observation | Iterable[Observation],
        *,
        decision: Decision | None = None,
    ) -> Coroutine[Any, Any, Decision]:
        """
        Learns the limits that the response to a call reports, as an Observation or several. They count for every process
        that uses the key, and never admit a call earlier. `decision` is the Decision of the call. The units that were charged
        since then are added to the usage in the response.
        """
    def override(
        self,
        /,
        policy: Name | Policy,
        key: str,
        limits: str | Limit | Policy | Iterable[str | Limit] | None,
        ttl: float | timedelta | None = None,
    ) -> Coroutine[Any, Any, None]:
        """
        Gives a key other limits than its policy: a notation, a Limit, a list of both, or a Policy, of which only the limits count.
        "none" is no limit, and None ends the override, as `ttl` seconds do. Other processes
        use it within a second. Used units stay used for each limit of the same algorithm, period and unit.
        """
    def overrides(self, /, policy: Name | Policy) -> Coroutine[Any, Any, list[Override]]:
        """
        The keys of a policy with other limits from `override`, in the order of the keys.
        """
    def peek(
        self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int] = 1, priority: str | None = None
    ) -> Coroutine[Any, Any, Decision]:
        """
        Returns the Decision that a check would return, and consumes nothing.
        """
    def ping(self, /) -> Coroutine[Any, Any, None]:
        """
        Returns when the store answers. Raises StoreError with the reason when it does not.
        """
    def policy(self, /, policy: Name | Policy) -> Policy:
        """
        The policy behind a name or a notation at this moment.
        Not awaitable: it needs no store.
        """
    def refund(
        self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int] = 1
    ) -> Coroutine[Any, Any, None]:
        """
        Gives units back, at most what is used.
        """
    def reload(self, /) -> Coroutine[Any, Any, None]:
        """
        Reads the policy file again. It takes the whole file, or raises and changes nothing.
        """
    def set_rollout(self, /, percent: float) -> None:
        """
        Changes the share of the keys that use the new store of a `rollout`, in percent, at once.
        Not awaitable: it needs no store.
        """
    def settle(
        self,
        /,
        decision: Decision,
        actual_cost: int | Sequence[int | Mapping[str, int] | None] | Mapping[str, int | Mapping[str, int] | None],
    ) -> Coroutine[Any, Any, None]:
        """
        Call it once after the work. It charges or refunds the difference between the units of a check and the actual cost.
        For the Decision of a peek, which has consumed nothing, it charges the actual cost.

        After `check_all`, one number is for the entries with a cost other than 1, or for all. A list has one for each entry, a dict
        for the policies that it names. None leaves an entry as it is. For a policy with units, give a dict of them. Units that it
        does not name stay as they are.
        """
    def stats(self, /) -> dict[str, Any]:
        """
        The counts since the limiter was made or its process was forked, without any key: `policies` by name, calls to
        the `store`, its `breaker`, and `counters`. It is ready for JSON, and docs/metrics.md explains each number.
        Not awaitable: it needs no store.
        """
    def to_blocking(self, /) -> Limiter[Name]:
        """
        This limiter for threads. Policies, usage and connections are shared.
        """
    def unblock(self, /, policy: Name | Policy, key: str) -> Coroutine[Any, Any, None]:
        """
        Ends a block.
        """
    def waiting(self, /, policy: Name | Policy, key: str) -> int:
        """
        The number of calls of `acquire` and `hold` that wait for a key in this limiter.
        Not awaitable: it needs no store.
        """

@final
class Attempt:
    """
    One attempt in a journal.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def allowed(self, /) -> bool:
        """
        True if it was allowed.
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        Its fields as a dict.
        """
    @property
    def at(self, /) -> float:
        """
        When, in seconds since 1970.
        """
    @property
    def cost(self, /) -> int:
        """
        The units that it requested.
        """
    @property
    def meta(self, /) -> str | None:
        """
        Its metadata, as text. Bytes that are not UTF-8 appear as `\\xff`.
        """
    @property
    def meta_bytes(self, /) -> bytes | None:
        """
        Its metadata, byte for byte.
        """

@final
class CallCoroutine:
    """
    A call that is made when it is awaited, like that of any `async def`.

    An immediate answer is returned without an iteration of the event loop.
    """
    def __await__(self, /) -> Generator[Any, Any, Any]: ...
    def __bool__(self, /) -> bool:
        """
        A call that was not awaited has no answer. As a truth value it would admit every call.

        asyncio asks it too, for the `repr` of a task: a task has awaited it, or will.
        """
    def __iter__(self, /) -> CallCoroutine: ...
    def __next__(self, /) -> Any: ...
    def close(self, /) -> None:
        """
        Ends it, as `close` of any coroutine.
        """
    def send(self, /, value: Any) -> Any:
        """
        Sends a value into it, as `send` of any coroutine.
        """
    def throw(self, /, *error: Any) -> Any:
        """
        Raises an error in it, as `throw` of any coroutine.
        """

@final
class ClientIp:
    """
    Makes the key client_ip.
    """
    def __new__(cls, /, trusted_proxies: Iterable[object] | int | None = None, ipv6_prefix: int = 64) -> ClientIp: ...
    def key(self, /, peer: str | None, forwarded: list[bytes] | None = None, unix: bool = False) -> str:
        """
        The key of a request, from its peer's address and the lines of X-Forwarded-For. `unix` is true if the server listens on
        a Unix domain socket, because its peers have no address. Any other peer without one raises KeyInvalid.
        """
    @property
    def reads_forwarded(self, /) -> bool:
        """
        True if X-Forwarded-For is read at all.
        """

@final
class Decision:
    """
    The answer to a check, as data. A denial is a Decision, never an error. In a condition it is true exactly if it is allowed.

    Times are seconds.
    """
    def __bool__(self, /) -> bool: ...
    def __copy__(self, /) -> Decision: ...
    def __deepcopy__(self, /, _memo: object) -> Decision: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __reduce__(self, /) -> tuple[object, ...]: ...
    def __repr__(self, /) -> str: ...
    @property
    def abnormal(self, /) -> bool:
        """
        True if it is denied by a block after repeated denials, of a policy with several times in block_for. It is false for a block
        that was made by hand.
        """
    @property
    def allowed(self, /) -> bool:
        """
        True if the check was admitted.
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        Its fields as a dict of plain values, ready for JSON.
        """
    @property
    def cost(self, /) -> int:
        """
        The units that were requested.
        """
    @property
    def decisions(self, /) -> tuple[Decision, ...]:
        """
        One Decision for each entry of a check_all. Empty otherwise.
        """
    @property
    def delay(self, /) -> float:
        """
        For a leaky-bucket: the seconds to wait before the work begins.
        """
    @property
    def granted(self, /) -> int:
        """
        The consumed units: `cost` or 0. With `partial` it may be between, and for a charge it is the cost. `settle` starts from it.
        """
    @property
    def key(self, /) -> str:
        """
        The key.
        """
    @property
    def learned(self, /) -> bool:
        """
        True if a limit that a service reported gave the answer to an outgoing call.
        """
    @property
    def limit(self, /) -> int:
        """
        The most units that the binding limit ever admits at once. The binding limit is the one that denied, or else the one
        with the smallest share left.
        """
    @property
    def limits(self, /) -> tuple[LimitState, ...]:
        """
        The state of each limit, in the order of the policy.
        """
    @property
    def next_after(self, /) -> float | None:
        """
        Seconds until the same check is admitted again, also when allowed: 0 for at once, None for never.
        """
    @property
    def overridden(self, /) -> bool:
        """
        True if the key has an override, which gave the answer. `limits` has its limits. A key with "none" is always allowed.
        """
    @property
    def policy(self, /) -> str:
        """
        The policy's name.
        """
    @property
    def remaining(self, /) -> int:
        """
        Units that the binding limit would admit now.
        """
    @property
    def reset_after(self, /) -> float:
        """
        Seconds until the binding limit is as if it were unused and the key has no block.
        """
    @property
    def reset_at(self, /) -> float:
        """
        The moment at which `reset_after` ends, in seconds since 1970: the same in all calls until units are consumed.
        """
    @property
    def retry_after(self, /) -> float | None:
        """
        Seconds until the same check is admitted if no other call uses the key: 0 when allowed, None for never.
        """
    @property
    def shadow(self, /) -> bool:
        """
        True if a shadow policy would have denied the call.
        """
    @property
    def source(self, /) -> str:
        """
        The source of the answer: "store", "deny-cache", "lease" or "fallback".
        """
    @property
    def unavailable(self, /) -> bool:
        """
        True if it is denied because the store failed (on_store_error "closed"), and not by a limit. A web layer then
        answers 503 instead of 429.
        """

@final
class Headers:
    """
    The header fields that announce limits. The option is read once, not for every response.
    """
    def __new__(cls, /, name: str) -> Headers: ...
    def openapi(self, /) -> str:
        """
        The description of a refusal for an OpenAPI document, as JSON.
        """
    def raw(self, /, *announced: Policy | Decision) -> list[tuple[bytes, bytes]]:
        """
        The fields as ASGI has them: bytes, names in lower case.
        """
    def text(self, /, *announced: Policy | Decision) -> list[tuple[str, str]]:
        """
        The fields of a response after these Decisions, as text. Policies are announced before them, also those that were not
        asked.
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
        The Decision that admitted it.
        """
    @property
    def lost(self, /) -> bool:
        """
        True if others may have the units now: the store did not have the hold at a renewal, or no
        renewal has succeeded for its ttl. It stays true. Tidegate logs and counts a failed renewal, and
        tries again. If it succeeds in time, the hold is not lost.
        """
    def release(self, /) -> None:
        """
        Gives the units back. Further calls have no effect.
        """
    @property
    def released(self, /) -> bool:
        """
        True if the units went back.
        """
    def settle(self, /, actual_cost: int | Mapping[str, int]) -> None:
        """
        After the work: charges or refunds the difference between what the other limits were charged and the actual cost, once: a number, or
        numbers by the names of units. Those that it does not name stay as they are, and so does what is held.
        """

@final
class Limit:
    """
    A limit: `count` units per `period`, counted by an algorithm.

    `period` is a number of seconds or a text such as "10m" or "month". For "concurrency" it is the ttl of holds and may be
    left out. Only buckets have a `burst`, only token-bucket has `initial`, only sliding-window has a `precision`.
    With a `unit` it counts that unit, such as "tokens", and a call gives the number. A calendar-window of one day, week, month or year
    may begin at another moment, `from_="day 15 at 06:00"`, and by the clocks of a time zone, `in_="Europe/Berlin"`.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        algorithm: str,
        count: int,
        period: float | str | timedelta | None = None,
        *,
        burst: int | None = None,
        initial: int | None = None,
        precision: int | None = None,
        unit: str | None = None,
        from_: str | None = None,
        in_: str | None = None,
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
        Its algorithm: "gcra", "sliding-window", …
        """
    @property
    def burst(self, /) -> int | None:
        """
        The burst, if one was given.
        """
    @property
    def capacity(self, /) -> int:
        """
        The most units that it ever admits at once.
        """
    @property
    def count(self, /) -> int:
        """
        Units per period.
        """
    @property
    def from_(self, /) -> str | None:
        """
        The moment of its period at which each window begins, such as "day 15 at 06:00". None for the beginning of the period.
        """
    @property
    def in_(self, /) -> str | None:
        """
        The time zone of its windows. None for UTC.
        """
    @property
    def initial(self, /) -> int | None:
        """
        The tokens that a token-bucket starts with, if they were given.
        """
    @property
    def period(self, /) -> float:
        """
        The period in seconds, with months of 30 and years of 360 days. For "concurrency", the ttl of holds.
        """
    @property
    def precision(self, /) -> int | None:
        """
        The granules of a sliding-window, else None.
        """
    @property
    def unit(self, /) -> str | None:
        """
        The unit that it counts, if it has one. A call gives the number of them.
        """

@final
class LimitState:
    """
    The state of one limit in a Decision.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def algorithm(self, /) -> str:
        """
        Its algorithm: "gcra", "sliding-window", …
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        Its fields as a dict.
        """
    @property
    def cost(self, /) -> int:
        """
        The units of it that the call asked for.
        """
    @property
    def exceeded(self, /) -> bool:
        """
        True if it denied the check.
        """
    @property
    def limit(self, /) -> int:
        """
        The most units that it ever admits at once.
        """
    @property
    def next_after(self, /) -> float | None:
        """
        Seconds until it admits the same cost again, also in a Decision that is allowed.
        """
    @property
    def over(self, /) -> int:
        """
        The units that are used beyond it, after a charge or after its numbers were lowered.
        """
    @property
    def period(self, /) -> float:
        """
        Its period in seconds. For "concurrency", the ttl of holds.
        """
    @property
    def remaining(self, /) -> int:
        """
        Units that it would admit now.
        """
    @property
    def reset_after(self, /) -> float:
        """
        Seconds until it is as if it were unused.
        """
    @property
    def retry_after(self, /) -> float | None:
        """
        Seconds until it admits the cost: 0 when it does now, None for never.
        """
    @property
    def unit(self, /) -> str | None:
        """
        The unit that it counts, if it has one.
        """

@final
class Limiter(Generic[Name]):
    """
    Checks limits on the calling thread.

    - `store`: "memory://" (the default), a file ("file:///path/to/limits"), a Redis URL, a list of URLs, or a `rollout`.
    - `policies`: the policies by name. Each is a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
    - `prefix`: the beginning of every key in Redis, "tg" by default.
    - `key_secret`: at least 16 bytes for the digests in the names of Redis keys. With it, a copy of the data does not show if
      a guessed key, such as an address, was used. All limiters that share limits need the same secret.
    - `timeout`: the longest time that a call may wait for the store, in seconds, 0.25 by default.
    - `on_store_error`: the answer to a check when the store fails: "raise", "open", "closed" or "local" (the default).
    - `deny_cache`: the seconds for which a denial is repeated without a call to the store, 1.0 by default. 0 turns it off.
    - `on_change`: a function that gets a StoreChange when a store is lost, refuses calls or is back. It runs on a separate thread.
    - `on_near_limit`: a function that gets a NearLimit before a key reaches a limit, once for each policy, key and window. It runs on a
      separate thread.
    - `near_limit`: the part of a limit from which on it is near, 0.8 by default.
    - `watch`: for `from_file`, the seconds between two looks at the file for a change. By default it is 0, which never looks.
    - `clock`: a ManualClock, for tests.
    - `log_refusals`: True logs each refusal to the logger "tidegate", at most ten a second.

    For type checkers you can name the policies: `limiter: Limiter[Literal["free", "pro"]] = Limiter(policies={…})` takes no other
    names. Give a notation as a Policy then.

    Threads may share it, and you may make it before a fork::

        limiter = Limiter(policies={"login": "20/minute; 5/3s"})
        if not limiter.check("login", "alice"):
            ...
    """
    def __enter__(self, /) -> Limiter[Name]: ...
    def __exit__(self, /, *_error: object) -> None: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(
        cls,
        /,
        store: str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None = None,
        *,
        policies: Mapping[Name, Any] | None = None,
        **options: Unpack[LimiterSettings],
    ) -> Limiter[Name]: ...
    def __reduce__(self, /) -> NoReturn: ...
    def __repr__(self, /) -> str: ...
    def _admit(
        self,
        /,
        asked: list[tuple[PreparedPolicy, str, int | Mapping[str, int], str | bytes | None, str | None, str | None]],
        records_steps: bool = False,
    ) -> Admission:
        """
        Asks the policies of a request, each (prepared, key, cost, meta, priority, method). The units of a concurrency limit are
        held. With `records_steps` the answer has the steps in which the store was asked.
        """
    @property
    def _generation(self, /) -> int:
        """
        Another number after each `reload`.
        """
    @property
    def _is_local(self, /) -> bool:
        """
        True if usage lives in this process alone.
        """
    def _job_wait(self, /, decision: Decision, came_back: bool, usual_length: float | None) -> float:
        """
        The seconds until a refused job asks again. `usual_length` is the typical run time of jobs, if any has ended.
        """
    def _learn(self, /, call: OutgoingCall, observations: list[Observation], decision: Decision) -> None:
        """
        Learns the limits in the response to a call. The response stands even if they cannot be learned.
        """
    def _refused_since(self, /, call: OutgoingCall, decision: Decision) -> Decision | None:
        """
        The refusal of the service since that Decision, or None.
        """
    def _samples(self, /, name: str | None = None) -> str:
        """
        The values of one metric, or of all, as JSON.
        """
    def _turn(self, /, call: OutgoingCall, timeout: float | None, announces: bool = False) -> Admission:
        """
        Waits until a call may go out. If the answer `waits`, the caller waits for as long as its Decision says, and asks again.
        With `announces` it also hears of the wait for its own policy, and asks again at once, without `announces`.
        """
    def _use_policy(self, /, policy: Name | Policy, by: str) -> PolicyUse:
        """
        Registers a use of a policy by its name, as long as the PolicyUse exists. `reload` refuses to drop such a policy.
        """
    def acquire(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        timeout: float | timedelta | None = None,
        meta: str | bytes | None = None,
        priority: str | None = None,
    ) -> Decision:
        """
        Waits until the call is admitted, at most `timeout` seconds. The Decision is a denial if that would be too late.

        Calls that wait for the same key are admitted in their order.
        """
    def block(self, /, policy: Name | Policy, key: str, seconds: float | str | timedelta) -> None:
        """
        Denies the key for this number of seconds (or "10m"), whatever its usage is.
        """
    def charge(self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int]) -> Decision:
        """
        Consumes even beyond the limit: windows count it, buckets go into debt, `remaining` is 0.
        """
    def check(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        meta: str | bytes | None = None,
        partial: bool = False,
        priority: str | None = None,
    ) -> Decision:
        """
        Checks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a
        Policy.

        The journal remembers `meta` (str or bytes). A denial is a Decision, never an error. With `partial` it takes as
        many units as are left, up to `cost`: see `granted`. With `priority`, a class of the policy's `priorities`, a part
        of each limit stays free.
        """
    def check_all(
        self,
        /,
        entries: Iterable[tuple[str | Policy | int | Mapping[str, int] | bytes | None, ...]],
        *,
        partial: bool = False,
    ) -> Decision:
        """
        Checks several policies and keys, each (policy, key), (policy, key, cost), (policy, key, cost, meta) or
        (policy, key, cost, meta, priority), and charges all or none.

        The Decision has the fields of the first denial, if there is one, and in `decisions` a Decision for each entry.
        It refuses `partial`, because it charges all or nothing.
        """
    def clear(self, /, policy: Name | Policy, key: str) -> None:
        """
        Forgets the usage of a key and ends its block. Its journal stays.
        """
    def clear_all(self, /) -> None:
        """
        Forgets all usage, blocks and journals under the prefix, for all policies and keys.
        """
    def close(self, /) -> None:
        """
        Closes the limiter. Calls that wait, and all later calls, raise ClosedError. Turns, holds and leased units go back.
        """
    def counters(self, /) -> dict[str, int]:
        """
        The `counters` of `stats()` alone: events of stores, leases, fallbacks and holds.
        """
    @classmethod
    def from_file(
        cls,
        /,
        path: str | PathLike[str],
        store: str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None = None,
        **options: Unpack[LimiterOptions],
    ) -> Limiter[str]:
        """
        The limiter that a policy file describes: YAML, TOML or JSON. `store` and `prefix` replace those of the file.

        Its policies are those of the file and of `policies`. The other options are those of the class.
        """
    def hold(
        self,
        /,
        policy: Name | Policy,
        key: str,
        cost: int | Mapping[str, int] = 1,
        timeout: float | timedelta | None = 0.0,
        priority: str | None = None,
        meta: str | bytes | None = None,
    ) -> Hold:
        """
        Takes units of a "concurrency" limit: renewed while the Hold lives, given back by `release` or at the end of
        `with`. Waits for room at most `timeout` seconds, in the line of all who wait for the key; None is for as long as it takes.
        Raises RateLimited when there is none.
        """
    def journal(self, /, policy: Name | Policy, key: str) -> list[Attempt]:
        """
        The newest attempts, newest first. The policy needs a `journal`.
        """
    def limit(
        self,
        /,
        policy: Name | Policy,
        *,
        key: str | Callable[..., str],
        cost: int | Mapping[str, int] | Callable[..., int | Mapping[str, int]] | None = None,
        priority: str | Callable[..., str | None] | None = None,
    ) -> Decorator:
        """
        Returns a decorator. Each call of the function is checked first, and raises RateLimited if it is denied.

        `key` is a function of the call's arguments, or a text. `cost` is a number (1), numbers by units, or a function of these.
        `priority` is the name of a class of calls, or a function that returns one or None.
        A policy with a "concurrency" limit is held while the function runs. With a leaky-bucket, the function runs after the delay.

        An async function is limited without blocking its event loop::

            @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
            def send_mail(user, text): ...
        """
    def observe(
        self,
        /,
        policy: Name | Policy,
        key: str,
        observation: Observation | Iterable[Observation],
        *,
        decision: Decision | None = None,
    ) -> Decision:
        """
        Learns the limits that the response to a call reports, as an Observation or several. They count for every process
        that uses the key, and never admit a call earlier. `decision` is the Decision of the call. The units that were charged
        since then are added to the usage in the response.
        """
    def override(
        self,
        /,
        policy: Name | Policy,
        key: str,
        limits: str | Limit | Policy | Iterable[str | Limit] | None,
        ttl: float | timedelta | None = None,
    ) -> None:
        """
        Gives a key other limits than its policy: a notation, a Limit, a list of both, or a Policy, of which only the limits count.
        "none" is no limit, and None ends the override, as `ttl` seconds do. Other processes
        use it within a second. Used units stay used for each limit of the same algorithm, period and unit.
        """
    def overrides(self, /, policy: Name | Policy) -> list[Override]:
        """
        The keys of a policy with other limits from `override`, in the order of the keys.
        """
    def peek(
        self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int] = 1, priority: str | None = None
    ) -> Decision:
        """
        Returns the Decision that a check would return, and consumes nothing.
        """
    def ping(self, /) -> None:
        """
        Returns when the store answers. Raises StoreError with the reason when it does not.
        """
    def policy(self, /, policy: Name | Policy) -> Policy:
        """
        The policy behind a name or a notation at this moment.
        """
    def refund(self, /, policy: Name | Policy, key: str, cost: int | Mapping[str, int] = 1) -> None:
        """
        Gives units back, at most what is used.
        """
    def reload(self, /) -> None:
        """
        Reads the policy file again. It takes the whole file, or raises and changes nothing.
        """
    def set_rollout(self, /, percent: float) -> None:
        """
        Changes the share of the keys that use the new store of a `rollout`, in percent, at once.
        """
    def settle(
        self,
        /,
        decision: Decision,
        actual_cost: int | Sequence[int | Mapping[str, int] | None] | Mapping[str, int | Mapping[str, int] | None],
    ) -> None:
        """
        Call it once after the work. It charges or refunds the difference between the units of a check and the actual cost.
        For the Decision of a peek, which has consumed nothing, it charges the actual cost.

        After `check_all`, one number is for the entries with a cost other than 1, or for all. A list has one for each entry, a dict
        for the policies that it names. None leaves an entry as it is. For a policy with units, give a dict of them. Units that it
        does not name stay as they are.
        """
    def stats(self, /) -> dict[str, Any]:
        """
        The counts since the limiter was made or its process was forked, without any key: `policies` by name, calls to
        the `store`, its `breaker`, and `counters`. It is ready for JSON, and docs/metrics.md explains each number.
        """
    def to_async(self, /) -> AsyncLimiter[Name]:
        """
        This limiter for event loops. Policies, usage and connections are shared.
        """
    def unblock(self, /, policy: Name | Policy, key: str) -> None:
        """
        Ends a block.
        """
    def waiting(self, /, policy: Name | Policy, key: str) -> int:
        """
        The number of calls of `acquire` and `hold` that wait for a key in this limiter.
        """

@final
class ManualClock:
    """
    A clock for tests. A limiter with such a clock uses its time instead of the store's.

    Times are seconds since 1970. It stands still until `advance` or `set` moves it::

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
    def advance(self, /, seconds: float | timedelta) -> None:
        """
        Moves the clock forward by this number of seconds. Calls that wait for that time continue.
        """
    def now(self, /) -> float:
        """
        The time, in seconds since 1970.
        """
    def set(self, /, now: float) -> None:
        """
        Sets the clock to a time in seconds since 1970. It may go back.
        """

@final
class NearLimit:
    """
    A key has come near a limit. `on_near_limit` gets each policy and key at most once in a window.
    """
    def __repr__(self, /) -> str: ...
    @property
    def key(self, /) -> str:
        """
        The key.
        """
    @property
    def limit(self, /) -> int:
        """
        The units of that limit.
        """
    @property
    def notation(self, /) -> str:
        """
        The limit that has the least left in proportion, as a notation.
        """
    @property
    def policy(self, /) -> str:
        """
        The policy.
        """
    @property
    def remaining(self, /) -> int:
        """
        The units that are left of it.
        """
    @property
    def reset_after(self, /) -> float:
        """
        The seconds until all its units are back. Until then the policy and key are not told again.
        """

@final
class Observation:
    """
    One limit that a response reports, or a wait that it asks for. A field is None if the response does not have it.

        for observation in Observation.from_headers(response.headers, status=response.status_code):
            print(observation.limit, observation.remaining, observation.retry_after)
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(
        cls,
        /,
        *,
        name: str | None = None,
        limit: int | None = None,
        window: float | timedelta | None = None,
        unit: str | None = None,
        remaining: int | None = None,
        reset_after: float | timedelta | None = None,
        retry_after: float | timedelta | None = None,
        scope: Literal["key", "all"] = "key",
    ) -> Observation: ...
    def __repr__(self, /) -> str:
        """
        The fields that the response has.
        """
    def as_dict(self, /) -> dict[str, Any]:
        """
        Its fields as a dict.
        """
    @staticmethod
    def from_headers(
        headers: Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]],
        date: float | datetime | None = None,
        *,
        status: int | None = None,
        body: bytes | str | None = None,
        max_learned_wait: float | timedelta | None = None,
    ) -> list[Observation]:
        """
        Reads the limits in these headers: an Observation for each limit. One with `retry_after` comes first.

        `headers` is a mapping, or pairs of names and values. `date` is the time of the response, in seconds since 1970 or as a
        datetime, by default now. If the response has a `Date`, moments go by the clock of the service. `status` shows
        if it is a refusal. Give the `body` as it came, which is read for a 403, 429 and 503. No wait is longer than
        `max_learned_wait`. Impossible values are ignored.
        """
    @property
    def limit(self, /) -> int | None:
        """
        The count of the limit.
        """
    @property
    def name(self, /) -> str | None:
        """
        The name that the response gives the limit: of a policy, a bucket or a resource.
        """
    @property
    def remaining(self, /) -> int | None:
        """
        The units that are left, never more than `limit`.
        """
    @property
    def reset_after(self, /) -> float | None:
        """
        The seconds until the limit is reset, or until more units are left if the response has that. 0 if the moment has passed.
        """
    @property
    def retry_after(self, /) -> float | None:
        """
        The seconds until the request may be made again.
        """
    @property
    def scope(self, /) -> str:
        """
        The scope of `retry_after`: "key" for the key of the request, or "all" for every request to the service.
        """
    @property
    def unit(self, /) -> str | None:
        """
        The unit that the limit counts, such as "tokens".
        """
    @property
    def window(self, /) -> float | None:
        """
        The seconds for which the count holds.
        """

@final
class OutgoingCall:
    """
    The request of an outgoing call to its limits. `origin` is the key for waits that the service imposes on all its callers, if it is
    not `key`.
    """
    def __new__(
        cls, /, policy: Policy, key: str, origin: str | None, cost: int | Mapping[str, int], priority: str | None
    ) -> OutgoingCall: ...
    @property
    def policy(self, /) -> Any:
        """
        The policy as it was given.
        """

@final
class Override:
    """
    A key with an override.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def as_dict(self, /) -> dict[str, Any]:
        """
        Its fields as a dict.
        """
    @property
    def expires_at(self, /) -> float | None:
        """
        When it has the numbers of its policy again, in seconds since 1970; None where it keeps them.
        """
    @property
    def key(self, /) -> str:
        """
        The key.
        """
    @property
    def limits(self, /) -> str:
        """
        Its limits as a notation, or "none".
        """

@final
class Policy:
    """
    A named, immutable list of limits that must all admit, with options.

    `limits` is a notation such as "20/minute; 5/3s", a Limit, or a list of both. Without a `name` the notation is its name:
    the same limits in two places are the same policy.

    The other options are those of `PolicyOptions`.
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
        **options: Unpack[PolicyOptions],
    ) -> Policy: ...
    def __reduce__(self, /) -> tuple[object, ...]: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        The notation of its limits.
        """
    @property
    def block_for(self, /) -> float | list[float] | None:
        """
        The time for which a key stays denied after a denial. With several times, each new block takes the next, and the
        last repeats.
        """
    @property
    def count_denied(self, /) -> bool:
        """
        Charge denied checks too, so that a caller that keeps trying stays denied.
        """
    @property
    def forgive(self, /) -> float | None:
        """
        The time after the end of a block until the next block takes the first time of `block_for` again. Without it, a
        day.
        """
    @property
    def journal(self, /) -> int:
        """
        The number of newest attempts to remember with their metadata. With 0, nothing is remembered.
        """
    @staticmethod
    def learned() -> Policy:
        """
        The policy of calls that only the limits in responses limit.
        """
    @property
    def lease(self, /) -> int | str | None:
        """
        The units that a process takes in advance and spends without the network: a number, or a part such as `5%`.
        """
    @property
    def limits(self, /) -> tuple[Limit, ...]:
        """
        The limits, in the order they were written.
        """
    def lint(self, /) -> list[Warning]:
        """
        Warns about limits and options that probably do not have the intended effect.
        """
    @property
    def max_hold(self, /) -> float | None:
        """
        The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold.
        """
    @property
    def name(self, /) -> str:
        """
        The name, or the notation when none was given.
        """
    @property
    def on_store_error(self, /) -> str | None:
        """
        The answer to a check when the store fails. It overrides the choice of the limiter.
        """
    @property
    def overrides(self, /) -> dict[str, str] | None:
        """
        Other limits for single keys, by the key or by the network of an address: a notation, or `none` for a key
        without limits.
        """
    def paced(self, /, margin: float | timedelta = ...) -> Policy:
        """
        This policy for outgoing calls. The service counts calls when they arrive, and begins its windows at any moment, so a
        margin of this number of seconds allows for differences in travel time. Its calls obey the limits in responses: see `observe`.
        """
    @property
    def priorities(self, /) -> dict[str, str] | None:
        """
        The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`.
        """
    @property
    def shadow(self, /) -> bool:
        """
        Evaluate and count the policy, but never deny a call.
        """

@final
class PolicyUse:
    """
    Marks a policy as used. While it exists, `reload` refuses a file without a policy of that name.
    """

@final
class PreparedCheck:
    """
    A check that one native call makes for a request: its key, the check, and the header fields of the response.
    """
    def __new__(
        cls,
        /,
        policies: list[tuple[PreparedPolicy, Policy, int | Mapping[str, int] | None]],
        headers: Headers,
        ip: ClientIp | None = None,
    ) -> PreparedCheck:
        """
        With an `ip` the identity of a request is the address of its peer, without one it is the key.
        """
    def check(
        self, /, limiter: Limiter, identity: str, cost: int | None = None
    ) -> tuple[Decision, list[tuple[str, str]]]:
        """
        Checks on this thread: the Decision, and the header fields of the response.
        """
    def check_async(
        self, /, limiter: AsyncLimiter, identity: str, cost: int | None = None
    ) -> Decision | Coroutine[Any, Any, Decision]:
        """
        Checks from an event loop: the Decision when it is immediate, or an awaitable of it.
        """

@final
class PreparedPolicy:
    """
    A policy of a request, without what the request itself says.
    """
    def __new__(cls, /, policy: str | Policy, place: str | None) -> PreparedPolicy: ...
    @property
    def policy(self, /) -> Any:
        """
        The policy as it was given.
        """

@final
class Rollout:
    """
    Two stores and a share of the keys: the store of a limiter.
    """
    def __repr__(self, /) -> str: ...
    @property
    def percent(self, /) -> float:
        """
        The share of the keys that use the new store, from 0 to 100.
        """

@final
class StoreChange:
    """
    A store was lost, refuses calls, or is back. Each change is reported once.
    """
    def __repr__(self, /) -> str: ...
    @property
    def message(self, /) -> str:
        """
        The event and its cause, in one sentence.
        """
    @property
    def since(self, /) -> float:
        """
        When the outage began, also for "back": seconds since 1970.
        """
    @property
    def state(self, /) -> str:
        """
        One of "lost", "refusing" and "back".
        """
    @property
    def store(self, /) -> str:
        """
        The store's URL, without secrets.
        """

@final
class TokenEstimate:
    """
    The charge of a call.
    """
    @property
    def tokens(self, /) -> tuple[int, int]:
        """
        The tokens of the input and of the answer.
        """

@final
class TokenEstimator:
    """
    Estimates the calls of a preset, and learns from them.
    """
    def __new__(
        cls, /, preset: str, output: str | None = None, default_output: int | None = None
    ) -> TokenEstimator: ...
    def estimate(
        self, /, path: str | None, body: bytes, tokenizer: Callable[[str], Any] | None = None
    ) -> TokenEstimate | None:
        """
        The charge of the request to this path with this body. None if the request is not for a model.

        A tokenizer counts the tokens of the texts. It returns a number, or a sequence with that length.
        """
    def settle(
        self, /, estimate: TokenEstimate, response: UsageReader, status: int
    ) -> tuple[int | None, int | None] | None:
        """
        The actual cost of a call, from its response. None if the response has no usage and the call was served.
        """

@final
class UsageReader:
    """
    Reads the usage out of a response that comes in chunks.
    """
    def __new__(cls, /) -> UsageReader: ...
    def feed(self, /, chunk: bytes) -> None:
        """
        Reads the next chunk.
        """

@final
class Warning:
    """
    A part of a policy or a policy file that is valid but probably not intended.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        The whole warning in one line.
        """
    @property
    def column(self, /) -> int | None:
        """
        The column, from 1.
        """
    @property
    def file(self, /) -> str | None:
        """
        The file. None for a policy from code.
        """
    @property
    def line(self, /) -> int | None:
        """
        The line, from 1.
        """
    @property
    def message(self, /) -> str:
        """
        The problem, and the change that solves it.
        """
    @property
    def policy(self, /) -> str:
        """
        The policy's name.
        """

def after_fork_in_child() -> None:
    """
    Registered with `os.register_at_fork`. From then on the child does not use threads and connections of its parent.
    """

def anonymous(client: str) -> str:
    """
    The key of a client without a key of its own, made of its address.
    """

def before_exit() -> None:
    """
    Registered with `atexit`. Returns when no other thread is inside of Python code that this module has called.
    """

def costs_of_entries(
    entries: list[tuple[Policy, bool]],
    actual: int | Sequence[int | Mapping[str, int] | None] | Mapping[str, int | Mapping[str, int] | None],
) -> list[int | dict[str, int] | None]:
    """
    Returns the actual cost of each of several charged entries, a policy and if its call named a cost. None leaves an entry as it is.
    """

def hashed(secret: str) -> str:
    """
    A digest to use as a key instead of a secret.
    """

def lint(source: str | PathLike[str] | Policy | Mapping[str, Any]) -> list[Warning]:
    """
    Warns about limits and options that probably do not have the intended effect.

    It takes the path of a policy file, a notation such as "10/10s; 600/600s", a Policy, or policies by name as a limiter
    takes them. A text that ends like the name of a file is a path. The list is empty if nothing was found. An invalid
    policy raises PolicyError.
    """

def metrics() -> str:
    """
    Every metric, as JSON.
    """

def named(name: str) -> str:
    """
    The key of a user, or of another name that its owner may have chosen: no such key is that of another client.
    """

def nearest(word: str, names: list[str]) -> str | None:
    """
    The name that was probably meant, of names that are right.
    """

def placed_key(place: str | None, key: str, method: str | None = None) -> str:
    """
    The key under which a notation that is written at a place counts, for `peek`, `clear` and the like. None as the place is
    that of a policy with a name, which counts alike wherever it is used.

    `method` is that of the request, for a limit with `per_method`::

        limiter.clear("5/minute", placed_key("login", "203.0.113.9"))
    """

def problem(decision: Decision) -> str:
    """
    The body of a refusal: application/problem+json.
    """

def problem_without_store(*policies: Policy) -> str:
    """
    The body of a refusal of a request whose policies could not be asked.
    """

def read_response(
    headers: Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]],
    date: float | datetime | None = None,
    status: int | None = None,
    body: bytes | str | None = None,
    max_learned_wait: float | timedelta | None = None,
) -> tuple[list[Observation], int, float | None, bool]:
    """
    Returns the Observations of `Observation.from_headers`, the number of values that were not believed, the seconds until the call may be
    made again if it may, and True if only the body can name that wait.
    """

def restore_decision(
    policy: Policy, key: str, cost: int, granted: int, numbers: tuple[int, ...], decisions: tuple[Decision, ...]
) -> Decision:
    """
    Makes a pickled Decision again, from what its `__reduce__` returned.
    """

def rollout(old_url: str, new_url: str, percent: float) -> Rollout:
    """
    Moves from an old store to a new one: `percent` of the keys use the new one, always the same keys.

    Give it to a limiter as its store. `limiter.set_rollout(percent)` changes the share at once. Usage is not copied from
    one store to the other::

        limiter = Limiter(rollout("redis://old", "redis://new", 5))
    """

def run_command(arguments: list[str], /) -> int:
    """
    Runs the command with these arguments, which begin with its name. Returns the exit code.
    """

def shared_cost(policies: list[Policy], cost: Mapping[str, int]) -> list[int | dict[str, int]]:
    """
    Returns the share of each policy in the cost that they share: the units that it counts, or 1.
    """

def status(decision: Decision) -> int:
    """
    The status of the response: 200, 429 or 503.
    """

def verify_store(store: KeyValueStore | AsyncKeyValueStore) -> Any:
    """
    Tests a store. Returns None, or a coroutine for methods that are `async def`.
    """
