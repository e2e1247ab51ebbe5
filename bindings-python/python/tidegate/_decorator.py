"""The decorator `@limiter.limit(…)`."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from ._constants import check_constants, empty_limiter
from ._cost import COST, checked_units
from ._shown import shown
from ._tidegate import Decision, Policy
from ._tracing import TRACED, AnyLimiter, asked, to_async, to_blocking
from .errors import ConfigError, CostError, KeyInvalid, RateLimited

if TYPE_CHECKING:
    from ._tidegate import Hold

Function = TypeVar("Function", bound=Callable[..., Any])
# A key, or a function that makes it from the arguments of a call.
KeyOption: TypeAlias = "str | Callable[..., str]"
# A cost, or a function that makes it from the arguments of a call.
CostOption: TypeAlias = "int | Mapping[str, int] | Callable[..., int | Mapping[str, int]] | None"
# A class of calls, or a function that makes its name from the arguments of a call.
PriorityOption: TypeAlias = "str | Callable[..., str | None] | None"


class Decorator(Protocol):
    """The type of `limiter.limit(…)`. The decorated function keeps its name and its signature."""

    def __call__(self, function: Function, /) -> Function: ...


def limit(
    limiter: AnyLimiter, policy: str | Policy, key: KeyOption, cost: CostOption, priority: PriorityOption
) -> Decorator:
    """Returns the decorator, for both kinds of limiter."""
    if not isinstance(policy, (str, Policy)):
        raise TypeError(f"write @limiter.limit(policy, key=…): a policy must be a str or a Policy, not {shown(policy)}")
    if not isinstance(key, str) and not callable(key):
        raise TypeError(f"key must be a function of the call's arguments or a text, not {shown(key)}")
    check_options(limiter, policy, key, cost, priority)
    blocking, awaitable = to_blocking(limiter), to_async(limiter)
    holds = PolicyKind(limiter, policy)

    def decorate(function: Function, /) -> Function:
        if isinstance(function, (classmethod, staticmethod, property)):
            raise TypeError(f"put @limiter.limit below @{type(function).__name__}: it limits the function itself")
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"@limiter.limit must stand above a function, not {shown(function)}")
        wrapper: Any
        called = _called(function)
        if inspect.isasyncgenfunction(called):
            wrapper = _async_generator(
                function, _admission(Asking(awaitable, policy, function, key, cost, priority), holds)
            )
        elif inspect.iscoroutinefunction(called):
            wrapper = _coroutine(function, Asking(awaitable, policy, function, key, cost, priority), holds)
        elif holds.now() and inspect.isgeneratorfunction(called):
            wrapper = _generator(function, Asking(blocking, policy, function, key, cost, priority), holds)
        else:
            wrapper = _function(function, Asking(blocking, policy, function, key, cost, priority), holds)
        functools.update_wrapper(wrapper, function)
        # As long as the function exists, `reload` refuses to drop its policy.
        wrapper._tidegate_policy_use = limiter._use_policy(policy, f"@limiter.limit on {name_of(function)}")
        return cast(Function, wrapper)

    return decorate


def check_options(
    limiter: AnyLimiter, policy: str | Policy, key: KeyOption, cost: CostOption, priority: PriorityOption
) -> Policy:
    """Returns the policy. Raises for wrong options where a function is defined, not only when it is first called."""
    resolved = limiter.policy(policy)
    if isinstance(key, str):
        check_constants(key=key)
    # The policy may count units. A cost function has no arguments yet, so zeros stand in for its result.
    nothing = {one.unit or COST: 0 for one in resolved.limits}
    given = nothing if callable(cost) else 1 if cost is None else cost
    empty_limiter().peek(resolved, "", given, priority=None if callable(priority) else priority)
    return resolved


class PolicyKind:
    """Knows if a policy has units that are held. A reload may change that."""

    __slots__ = ("_generation", "_holds", "_limiter", "_policy")

    def __init__(self, limiter: AnyLimiter, policy: str | Policy) -> None:
        self._limiter, self._policy = limiter, policy
        self._generation: int | None = None

    def now(self) -> bool:
        generation = self._limiter._generation
        if generation != self._generation:
            self._holds = any(one.algorithm == "concurrency" for one in self._limiter.policy(self._policy).limits)
            self._generation = generation
        return self._holds


class Asking:
    """Asks the limiter for each call of a function, with the key, cost and class that its arguments give."""

    __slots__ = ("_cost", "_key", "_limiter", "_name", "_policy", "_priority")

    def __init__(
        self,
        limiter: Any,
        policy: str | Policy,
        function: Any,
        key: KeyOption,
        cost: CostOption,
        priority: PriorityOption,
    ) -> None:
        self._limiter, self._policy, self._name = limiter, policy, name_of(function)
        self._key, self._cost, self._priority = key, cost, priority

    def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls `check` or `hold` of the limiter."""
        call = getattr(asked(self._limiter) if TRACED else self._limiter, name)
        key, cost = self.key_and_cost(args, kwargs)
        if self._priority is None:
            return call(self._policy, key, cost)
        return call(self._policy, key, cost, priority=self.class_of(args, kwargs))

    def key_and_cost(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int | Mapping[str, int]]:
        key, cost, name = self._key, self._cost, self._name
        made = key if isinstance(key, str) else key(*args, **kwargs)
        if not isinstance(made, str):
            _close(made)
            found = "nothing (None)" if made is None else shown(made)
            raise KeyInvalid(f"the key function {name_of(key)} of {name} returned {found}: a key must be text (str)")
        if cost is None:
            return made, 1
        if not callable(cost):
            return made, cost
        units = cost(*args, **kwargs)
        if isinstance(units, Mapping):
            return made, checked_units(units, f"the cost of {name} is")
        if isinstance(units, bool) or not hasattr(units, "__index__"):
            _close(units)
            raise CostError(
                f"the cost of {name} is {shown(units)}: it must be a whole number, or a dict of such numbers"
            )
        return made, units

    def class_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        priority = self._priority
        made = priority(*args, **kwargs) if callable(priority) else priority
        if made is None or isinstance(made, str):
            return made
        _close(made)
        raise ConfigError(
            f"the priority of {self._name} is {shown(made)}: a class must be text (str), or None for no class"
        )


def _close(given: object) -> None:
    """Closes the coroutine of an async key, cost or class function. Otherwise Python also warns that it never ran."""
    if inspect.iscoroutine(given):
        given.close()


def name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _called(function: Any) -> Any:
    """Returns the function that a callable runs: the function inside a partial, or the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _delay(decision: Decision) -> float:
    """Returns the seconds to wait before the function runs. Raises if the call is denied."""
    if not decision:
        raise RateLimited(decision)
    return decision.delay


def _function(function: Any, asking: Asking, holds: PolicyKind) -> Any:
    generator = inspect.isgeneratorfunction(_called(function))

    def holding(*args: Any, **kwargs: Any) -> Any:
        hold = asking.ask("hold", args, kwargs)
        try:
            if delay := _delay(hold.decision):
                time.sleep(delay)
            returned = function(*args, **kwargs)
        except BaseException:
            hold.release()
            raise
        # A wrapper without functools.wraps may return work that has only begun, such as a coroutine.
        if inspect.isasyncgen(returned):
            return _held_items(hold, returned)
        if inspect.isgenerator(returned):
            return _held_generator(hold, returned)
        if inspect.isawaitable(returned):
            return _held_awaitable(hold, returned)
        hold.release()
        return returned

    held = _generator(function, asking, holds) if generator else holding

    def limited(*args: Any, **kwargs: Any) -> Any:
        if holds.now():
            return held(*args, **kwargs)
        if delay := _delay(asking.ask("check", args, kwargs)):
            time.sleep(delay)
        return function(*args, **kwargs)

    return limited


async def _held_awaitable(hold: Hold, awaitable: Any) -> Any:
    with hold:
        return await awaitable


def _held_generator(hold: Hold, generator: Any) -> Any:
    with hold:
        return (yield from generator)


def _held_items(hold: Hold, items: Any) -> Any:
    async def held(*_: Any) -> Hold:
        return hold

    return _async_generator(lambda: items, held)()


def _generator(function: Any, asking: Asking, holds: PolicyKind) -> Any:
    def holding(*args: Any, **kwargs: Any) -> Any:
        if not holds.now():
            if delay := _delay(asking.ask("check", args, kwargs)):
                time.sleep(delay)
            return (yield from function(*args, **kwargs))
        with asking.ask("hold", args, kwargs) as hold:
            if delay := _delay(hold.decision):
                time.sleep(delay)
            return (yield from function(*args, **kwargs))

    return holding


def _coroutine(function: Any, asking: Asking, holds: PolicyKind) -> Any:
    import asyncio

    async def limited(*args: Any, **kwargs: Any) -> Any:
        if holds.now():
            async with asking.ask("hold", args, kwargs) as hold:
                if delay := _delay(hold.decision):
                    await asyncio.sleep(delay)
                return await function(*args, **kwargs)
        if delay := _delay(await asking.ask("check", args, kwargs)):
            await asyncio.sleep(delay)
        return await function(*args, **kwargs)

    return limited


def _async_generator(function: Any, admit: Callable[..., Awaitable[Any]]) -> Any:
    """Returns an async generator that passes everything on to another one, within the hold of `admit` if there is one.

    Python has no `yield from` for async generators.
    """

    async def limited(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        hold = await admit(args, kwargs)
        try:
            items = function(*args, **kwargs)
            try:
                item = await anext(items)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        item = await items.athrow(error)
                    else:
                        item = await items.asend(sent)
            except StopAsyncIteration:
                return
            finally:
                await items.aclose()
        finally:
            if hold is not None:
                hold.release()

    return limited


def _admission(asking: Asking, holds: PolicyKind) -> Any:
    """Returns the function that admits a call of an async generator: with a hold, or with a check."""
    import asyncio

    async def admit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not holds.now():
            if delay := _delay(await asking.ask("check", args, kwargs)):
                await asyncio.sleep(delay)
            return None
        hold = await asking.ask("hold", args, kwargs)
        try:
            if delay := _delay(hold.decision):
                await asyncio.sleep(delay)
        except BaseException:
            hold.release()
            raise
        return hold

    return admit
