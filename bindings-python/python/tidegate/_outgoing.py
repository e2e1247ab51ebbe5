"""A call that goes out: it waits for its turn, is sent, observed and settled.

The flow is written once, as a coroutine. A blocking client runs it to its end at once with `run_now`, because none of
its awaits has to wait for an event loop. An `Exchange` covers the differences between clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from ._content_decoder import ContentDecoder, decoder
from ._cost import COST, CostByPolicy, checked_units
from ._decorator import Asking, CostOption, PriorityOption, check_options, name_of
from ._never_fits import never_fits
from ._origin import origin_of
from ._paced_options import OPTIONS, PacedOptions, PolicyOption, checked_flag, checked_function, checked_seconds
from ._queueing import holds_units
from ._redirects import MadeFor, followed, leads_on
from ._shown import shown
from ._tidegate import (
    Admission,
    AsyncLimiter,
    Decision,
    Headers,
    Limiter,
    OutgoingCall,
    Policy,
    problem,
    read_response,
    status,
)
from ._tracing import TRACED, asked, to_async, to_blocking, unwrapped
from .errors import ClosedError, ConfigError, CostError, RateLimited, StoreError
from .outgoing import SettleReader
from .web.options import check_names
from .web.processes import warn_of_memory

R = TypeVar("R")
T = TypeVar("T")
Cost: TypeAlias = "int | Mapping[str, int]"

_IDEMPOTENT = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
_RETRY_AFTER = Headers("off")
# The policy of calls that only the responses of the service limit.
_LEARNED = Policy.learned()


class OutgoingRequest:
    """The argument of the functions in the options, for a client that hides the body in its requests."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, original: Any) -> None:
        self.method, self.url, self.headers = method, url, headers
        # None for a stream, which cannot be read without consuming it.
        self.content = content
        # The request of the client.
        self.original = original


class OutgoingResponse:
    """The head of a response, as the argument of `settle`."""

    def __init__(self, status_code: int, headers: Mapping[str, str], request: OutgoingRequest) -> None:
        self.status_code, self.headers, self.request = status_code, headers, request


class Exchange(Protocol[R]):
    """A request of a client, and the operations on its responses."""

    # The argument of the functions in the options, with `method`, `url`, `headers` and `content`.
    request: Any
    # True if bodies are read and fed in the encoding of the service, such as gzip.
    encoded: bool

    async def send(self) -> R:
        """Sends the request. It may be called again."""

    def never_arrived(self, error: BaseException) -> bool:
        """True if a request certainly did not arrive when its `send` raised this error."""

    def can_repeat(self) -> bool:
        """True if the body of the request can be sent again."""

    def head(self, response: R) -> tuple[int, Mapping[str, str]]:
        """Returns the status and the header fields. Their names ignore case."""

    def fields(self, response: R) -> Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]:
        """The header fields, line by line."""

    async def read(self, response: R) -> bytes | None:
        """Returns the body, encoded or not, if it has at most MOST_BODY and comes within BODY_SECONDS. The caller can
        still read it."""

    def settled(self, response: R) -> Any:
        """Returns the argument of `settle`: `status_code`, `headers`, and the `request` of the exchange."""

    async def watch(self, response: R, passing: PassingBody) -> R:
        """Feeds `passing` each chunk that the caller reads. Ends it when the body ends or is given up."""

    async def close(self, response: R) -> None:
        """Gives the body up."""

    async def made(self, status: int, fields: dict[str, str], body: bytes) -> R:
        """Makes a response that no service has sent."""


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine of a blocking client. None of its awaits may wait for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("a coroutine of a blocking client waited for an event loop")


async def _now(value: Any) -> Any:
    return value


async def _awaited(value: Any) -> Any:
    return await value


async def _sleep_now(seconds: float) -> None:
    time.sleep(seconds)


# Tasks of callers that may be gone. The event loop alone holds only weak references to them.
_UNFINISHED: set[asyncio.Task[None]] = set()


def _begin(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Runs a coroutine to its end, even if the caller is cancelled meanwhile."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _UNFINISHED.add(task)
    task.add_done_callback(_UNFINISHED.discard)
    return task


class _Turn:
    """The turn of one attempt: its call, and the admission with its Decision and its hold."""

    __slots__ = ("admission", "call", "decision", "is_learned", "key", "origin")

    def __init__(self, call: OutgoingCall, key: str, origin: str | None, admission: Admission) -> None:
        self.call, self.key, self.origin = call, key, origin
        self.admission, self.decision = admission, admission.decision
        self.is_learned = call.policy is _LEARNED


class Pacing:
    """The flow of the calls of one client through a limiter."""

    def __init__(
        self, owner: object, limiter: Limiter | AsyncLimiter, policy: PolicyOption, options: Any, *, blocking: bool
    ) -> None:
        check_names(options, OPTIONS, name_of(owner))
        given: PacedOptions = options
        if not isinstance(unwrapped(limiter), (Limiter, AsyncLimiter)):
            raise TypeError(f"limiter must be a Limiter or an AsyncLimiter, not {shown(limiter)}")
        self._limiter: Any = (to_blocking if blocking else to_async)(unwrapped(limiter))
        warn_of_memory(self._limiter)
        self._done: Callable[[Any], Coroutine[Any, Any, Any]] = _now if blocking else _awaited
        # Returns a task if there is an event loop.
        self._begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None] = run_now if blocking else _begin
        self._sleep: Callable[[float], Coroutine[Any, Any, None]] = _sleep_now if blocking else asyncio.sleep
        self._blocking = blocking
        self._policy = policy
        self._prepared = functools.lru_cache(256)(self._prepare)
        self._settle = checked_function(given.get("settle"), "settle must be a function of a response")
        self._on_wait = checked_function(given.get("on_wait"), "on_wait must be a function of a Decision and seconds")
        timeout = given.get("timeout", 30.0)
        self._timeout = None if timeout is None else checked_seconds(timeout, "timeout", "a number of seconds, or None")
        self._margin = checked_seconds(given.get("margin", 0.05), "margin", "a number of seconds")
        self._max_wait = checked_seconds(
            given.get("max_learned_wait", 3600.0), "max_learned_wait", "a number of seconds"
        )
        self._retries = given.get("retries", 0)
        if isinstance(self._retries, bool) or not isinstance(self._retries, int) or self._retries < 0:
            raise ConfigError(f"retries is {shown(self._retries)}: it must be a whole number, 0 or more")
        self._learn, self._respond = checked_flag(given, "learn", True), checked_flag(given, "respond", False)
        self._prefix = given.get("prefix", "out:")
        if not isinstance(self._prefix, str):
            raise TypeError(f"prefix must be a str, not {shown(self._prefix)}")
        self._keys_are_origins = given.get("key") is None
        # True if each request takes one unit for its origin, and the policy is no function.
        self._is_plain = not callable(policy) and all(given.get(one) is None for one in ("key", "cost", "priority"))
        self._cost = given.get("cost")
        self._asking = self._asked(owner, given.get("key"), self._cost, given.get("priority"))

    def _asked(self, owner: object, key: Any, cost: CostOption, priority: PriorityOption) -> Asking:
        if not (key is None or isinstance(key, str) or callable(key)):
            raise TypeError(f"key must be a function of the request or a text, not {shown(key)}")
        policy = self._policy
        if not (policy is None or isinstance(policy, (str, Policy)) or callable(policy)):
            raise TypeError(f"policy must be a str, a Policy, a function of the request or None, not {shown(policy)}")
        if policy is None and not self._learn:
            raise ConfigError("with policy None and learn False nothing is limited: give a policy, or leave learn out")
        if isinstance(policy, (str, Policy)):
            check_options(self._limiter, policy, key if isinstance(key, str) else "", cost, priority)
            _, counted = self._prepared(policy, self._limiter._generation)
            if isinstance(cost, CostByPolicy):
                # Check this early, because clients of models hide the error of a call.
                units = dict.fromkeys(cost.units_of(counted), 0)
                check_options(self._limiter, policy, "", units or 1, priority)
            # As long as the client exists, `reload` refuses to drop its policy.
            self._use = self._limiter._use_policy(policy, name_of(owner))
        return Asking(self._limiter, "", owner, origin_of if key is None else key, cost, priority)

    def _prepare(self, policy: str | Policy | None, _generation: int) -> tuple[Policy, frozenset[str]]:
        """Returns the policy with the margin of outgoing calls, and the counted units. A reload may change both."""
        if policy is None:
            return _LEARNED, frozenset()
        resolved = self._limiter.policy(policy)
        holds_units(resolved, "a request waits here for its turn")
        return resolved.paced(self._margin), frozenset(one.unit or COST for one in resolved.limits)

    async def send(self, exchange: Exchange[R]) -> R:
        """Sends a request in its turn, repeats it as `retries` allows, and returns the response."""
        left, attempt = self._timeout, -1
        made_for = None if self._keys_are_origins else followed(self, str(exchange.request.url))
        while True:
            attempt += 1
            # Only the next attempt needs the time that is left.
            began = time.monotonic() if self._retries else 0.0
            try:
                turn = await self._turn(exchange.request, left, made_for)
            except RateLimited as refused:
                error = never_fits(refused.decision)
                if self._respond:
                    return await exchange.made(*_refusal(refused.decision, error))
                if error is not None:
                    raise error from None
                raise
            if self._retries:
                left = _less(left, time.monotonic() - began)
            try:
                response = await exchange.send()
            except BaseException as error:
                # The client behind this one may be paced too.
                if isinstance(error, (RateLimited, CostError)) or exchange.never_arrived(error):
                    await self._give_back(turn)
                turn.admission.release()
                raise
            try:
                code, headers = exchange.head(response)
                if not self._keys_are_origins and 300 <= code < 400 and "location" in headers:
                    made_for = made_for or MadeFor(str(turn.origin), turn.key)
                    leads_on(self, str(exchange.request.url), headers["location"], made_for)
                wait = await self._observe(exchange, response, turn)
                repeats = attempt < self._retries and self._repeats(exchange, wait, left)
                if self._settle is not None or turn.admission.holds:
                    response = await self._pass(exchange, response, turn)
                if not repeats:
                    return response
                await exchange.close(response)
                pause = _at_most((wait or 0.0) * random.uniform(1, 1.1), left)
                await self._sleep(pause)
                left = _less(left, pause)
            except BaseException:
                turn.admission.release()
                await exchange.close(response)
                raise

    async def _turn(self, request: Any, left: float | None, made_for: MadeFor | None) -> _Turn:
        """Waits for the turn of a request. Raises RateLimited if it does not come in time."""
        policy, key, cost, priority = self._asked_of(request)
        origin = None if self._keys_are_origins else self._prefix + origin_of(request)
        if made_for is not None and origin is not None and made_for.is_of_another(origin, key):
            key, origin = origin, None
        call = OutgoingCall(policy, key, origin, cost, priority)
        began = time.monotonic()
        turn = _Turn(call, key, origin, await self._admission(call, left))
        # A busy event loop comes late to a turn. The second turn counts, because the first may have been refused for
        # its own charge.
        if await self._is_over(turn):
            left = _less(left, time.monotonic() - began)
            turn = _Turn(call, key, origin, await self._admission(call, left))
        return turn

    async def _is_over(self, turn: _Turn) -> bool:
        """True if the service refuses calls since the turn was given. The turn is then given back."""
        is_over = True
        try:
            is_over = await self._done(self._limiter._refused_since(turn.call, turn.decision)) is not None
        finally:
            if is_over:
                await self._give_back(turn)
        return is_over

    async def _admission(self, call: OutgoingCall, left: float | None) -> Admission:
        limiter: Any = asked(self._limiter) if TRACED else self._limiter
        announces = self._on_wait is not None
        while True:
            began = time.monotonic()
            # One more coroutine would cost as much as a turn without a wait.
            admission = limiter._turn(call, left, announces)
            if not self._blocking:
                admission = await admission
            decision = admission.decision
            if admission.refused_by is None:
                return admission  # type: ignore[no-any-return]
            if not admission.waits:
                raise RateLimited(decision)
            if self._on_wait is not None:
                self._on_wait(decision, decision.retry_after)
            if admission.by_service:
                await self._sleep(decision.retry_after)
            else:
                announces = False
            left = _less(left, time.monotonic() - began)

    def _asked_of(self, request: Any) -> tuple[Policy, str, Cost, str | None]:
        """Returns policy, key, cost and class for the turn of a request."""
        given, generation = self._policy, self._limiter._generation
        if self._is_plain:
            return self._prepared(given, generation)[0], self._prefix + origin_of(request), 1, None
        given = given(request) if callable(given) else given
        if not (given is None or isinstance(given, (str, Policy))):
            raise TypeError(f"the policy of a request must be a str, a Policy or None, not {shown(given)}")
        policy, counted = self._prepared(given, generation)
        if isinstance(self._cost, CostByPolicy):
            self._cost.counts(request, counted)
        made, cost = self._asking.key_and_cost((request,), {})
        priority = self._asking.class_of((request,), {})
        return policy, self._prefix + made, cost, priority

    async def _observe(self, exchange: Exchange[R], response: R, turn: _Turn) -> float | None:
        """Passes the limits that a response announces to the limiter. Returns the wait before a retry, or None."""
        if not (self._learn or self._retries):
            return None
        code, headers = exchange.head(response)
        said = functools.partial(read_response, exchange.fields(response), status=code, max_learned_wait=self._max_wait)
        found, _, wait, needs_body = said()
        if needs_body and (decode := self._decoder(exchange, headers)) is not None:
            found, _, wait, _ = said(body=decode.decode(await exchange.read(response) or b""))
        # If a service states no limit, the next call goes once Tidegate knows that this one was served.
        if self._learn and (found or (turn.is_learned and turn.decision.learned)):
            # The response is there all the same, and the limiter may be closed by now.
            with contextlib.suppress(ClosedError):
                await self._done(self._limiter._learn(turn.call, found, turn.decision))
        return wait

    def _repeats(self, exchange: Exchange[R], wait: float | None, left: float | None) -> bool:
        request = exchange.request
        return (
            wait is not None
            and (left is None or wait <= left)
            and (request.method in _IDEMPOTENT or "idempotency-key" in request.headers)
            and exchange.can_repeat()
        )

    async def _pass(self, exchange: Exchange[R], response: R, turn: _Turn) -> R:
        """Returns the response. The call is settled when its body ends."""
        actual = None if self._settle is None else self._settle(exchange.settled(response))
        if actual is None and not turn.admission.holds:
            return response
        if actual is not None and not isinstance(actual, SettleReader):
            _check_cost(actual)
        decode = self._decoder(exchange, exchange.head(response)[1]) if isinstance(actual, SettleReader) else None
        return await exchange.watch(response, PassingBody(self, turn, actual, decode))

    def _decoder(self, exchange: Exchange[R], headers: Mapping[str, str]) -> ContentDecoder | None:
        """Returns the decoder for the chunks of a body, or None if it cannot be decoded."""
        return decoder(headers if exchange.encoded else {})

    async def _give_back(self, turn: _Turn) -> None:
        turn.admission.release()
        units = {state.unit or COST: 0 for state in turn.decision.limits if state.algorithm != "concurrency"}
        task = self._begin(self._settle_with(turn, 0 if units.keys() <= {COST} else units))
        if task is not None:
            await asyncio.shield(task)

    async def _settle_with(self, turn: _Turn, actual: Cost) -> None:
        # Without the store the charge stays, and the limiter has reported the state of its store.
        with contextlib.suppress(StoreError, ClosedError):
            await self._done(self._limiter.settle(turn.decision, actual))


class PassingBody:
    """The body of a response on its way to the caller. At its end the call is settled and its hold released."""

    def __init__(self, pacing: Pacing, turn: _Turn, actual: Any, decode: ContentDecoder | None) -> None:
        self._pacing, self._turn, self._decode = pacing, turn, decode
        self._actual: Any = actual
        self._ended = False
        self._settling: asyncio.Task[None] | None = None

    @property
    def holds_only(self) -> bool:
        """True if nothing is to be settled."""
        return self._actual is None

    def feed(self, chunk: bytes) -> None:
        """Takes a chunk as the caller gets it."""
        if self._decode is not None and not self._ended and (plain := self._decode.decode(chunk)):
            self._actual.feed(plain)

    def ended(self) -> None:
        """Ends the call, because the body has ended or is given up. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._turn.admission.release()
        actual = self._actual.end() if isinstance(self._actual, SettleReader) else self._actual
        if actual is not None:
            self._settling = self._pacing._begin(self._pacing._settle_with(self._turn, actual))

    async def end(self) -> None:
        """Does the same as `ended`, and returns when the call is settled."""
        self.ended()
        if self._settling is not None:
            await asyncio.shield(self._settling)


def _refusal(decision: Decision, error: CostError | None) -> tuple[int, dict[str, str], bytes]:
    """Returns status, header fields and body of the response for a refusal. `x-should-retry` stops retries of SDKs."""
    code, said = status(decision), json.loads(problem(decision))
    if error is not None:
        code = 413
        said = {"type": "about:blank", "title": "Content Too Large", "status": code, "detail": error.message}
    # Clients of models show the message of an error, and no detail.
    body = json.dumps({**said, "error": {"message": said["detail"]}}, separators=(",", ":")).encode()
    fields = {"Cache-Control": "no-store", "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
    return code, {**fields, "x-should-retry": "false", **dict(_RETRY_AFTER.text(decision))}, body


def _check_cost(actual: Any) -> None:
    if isinstance(actual, Mapping):
        checked_units(actual, "settle returned")
    elif isinstance(actual, bool) or not hasattr(actual, "__index__"):
        raise CostError(
            f"settle returned {shown(actual)}: it must be a whole number, a dict of numbers, a SettleReader, or None"
        )


def _at_most(seconds: float, left: float | None) -> float:
    return seconds if left is None else min(seconds, left)


def _less(left: float | None, spent: float) -> float | None:
    return None if left is None else max(0.0, left - spent)
