"""`@limiter.limit(…)`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar, cast

from ._tidegate import AsyncLimiter, Decision, Limiter, Policy
from .errors import CostError, KeyInvalid, RateLimited

Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """What `limiter.limit(…)` returns: the decorated function has the name and the signature it had."""

    def __call__(self, function: Function, /) -> Function: ...


def limit(
    limiter: Limiter | AsyncLimiter,
    policy: str | Policy,
    key: str | Callable[..., str],
    cost: int | Callable[..., int] | None,
) -> Decorator:
    """The decorator of both limiters."""
    if not isinstance(policy, (str, Policy)):
        raise TypeError(f"write @limiter.limit(policy, key=…): a policy is a str or a Policy, not {policy!r}")
    # A policy that makes no sense is told where the function is defined, not where it is first called.
    known = limiter.policy(policy)
    if not isinstance(key, str) and not callable(key):
        raise TypeError(f"key is a function of the call's arguments or a text, not {key!r}")
    blocking = limiter if isinstance(limiter, Limiter) else limiter.to_blocking()
    waiting = limiter if isinstance(limiter, AsyncLimiter) else limiter.to_async()
    holds = any(one.algorithm == "concurrency" for one in known.limits)

    def decorate(function: Function, /) -> Function:
        if isinstance(function, (classmethod, staticmethod, property)):
            raise TypeError(f"put @limiter.limit below @{type(function).__name__}: it limits the function itself")
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"@limiter.limit limits functions, not {function!r}")
        ask = _asker(function, key, cost)
        wrapper: Any
        if inspect.isasyncgenfunction(function):
            wrapper = _async_generator(function, waiting, policy, ask, holds)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(function, waiting, policy, ask, holds)
        elif holds and inspect.isgeneratorfunction(function):
            wrapper = _generator(function, blocking, policy, ask)
        else:
            wrapper = _function(function, blocking, policy, ask, holds)
        functools.update_wrapper(wrapper, function)
        return cast(Function, wrapper)

    return decorate


Ask = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[str, int]"]


def _asker(function: Any, key: str | Callable[..., str], cost: int | Callable[..., int] | None) -> Ask:
    """The key and the cost of a call; whose function is wrong is named."""
    name = getattr(function, "__qualname__", repr(function))

    def ask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
        asked = key if isinstance(key, str) else key(*args, **kwargs)
        if not isinstance(asked, str):
            _close(asked)
            told = "nothing (None)" if asked is None else f"{asked!r} ({type(asked).__name__})"
            raise KeyInvalid(f"the key function {_name(key)} of {name} returned {told}: a key is text (str)")
        if cost is None:
            return asked, 1
        units = cost(*args, **kwargs) if callable(cost) else cost
        if isinstance(units, bool) or not isinstance(units, int):
            _close(units)
            raise CostError(f"the cost of {name} is {units!r} ({type(units).__name__}): it must be a whole number")
        return asked, units

    return ask


def _close(given: object) -> None:
    """One who gave an async function is told what is wrong, and not that it was never awaited as well."""
    if inspect.iscoroutine(given):
        given.close()


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _go(decision: Decision) -> float:
    """How long to wait before going."""
    if not decision:
        raise RateLimited(decision)
    return decision.delay


def _function(function: Any, limiter: Limiter, policy: str | Policy, ask: Ask, holds: bool) -> Any:
    if holds:

        def held(*args: Any, **kwargs: Any) -> Any:
            with limiter.hold(policy, *ask(args, kwargs)) as hold:
                if delay := _go(hold.decision):
                    time.sleep(delay)
                return function(*args, **kwargs)

        return held

    def limited(*args: Any, **kwargs: Any) -> Any:
        if delay := _go(limiter.check(policy, *ask(args, kwargs))):
            time.sleep(delay)
        return function(*args, **kwargs)

    return limited


def _generator(function: Any, limiter: Limiter, policy: str | Policy, ask: Ask) -> Any:
    def held(*args: Any, **kwargs: Any) -> Any:
        with limiter.hold(policy, *ask(args, kwargs)) as hold:
            if delay := _go(hold.decision):
                time.sleep(delay)
            return (yield from function(*args, **kwargs))

    return held


def _coroutine(function: Any, limiter: AsyncLimiter, policy: str | Policy, ask: Ask, holds: bool) -> Any:
    if holds:

        async def held(*args: Any, **kwargs: Any) -> Any:
            async with limiter.hold(policy, *ask(args, kwargs)) as hold:
                if delay := _go(hold.decision):
                    await asyncio.sleep(delay)
                return await function(*args, **kwargs)

        return held

    async def limited(*args: Any, **kwargs: Any) -> Any:
        if delay := _go(await limiter.check(policy, *ask(args, kwargs))):
            await asyncio.sleep(delay)
        return await function(*args, **kwargs)

    return limited


def _async_generator(function: Any, limiter: AsyncLimiter, policy: str | Policy, ask: Ask, holds: bool) -> Any:
    async def limited(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if holds:
            async with limiter.hold(policy, *ask(args, kwargs)) as hold:
                if delay := _go(hold.decision):
                    await asyncio.sleep(delay)
                async for item in function(*args, **kwargs):
                    yield item
            return
        if delay := _go(await limiter.check(policy, *ask(args, kwargs))):
            await asyncio.sleep(delay)
        async for item in function(*args, **kwargs):
            yield item

    return limited
