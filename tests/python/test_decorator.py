"""`@limiter.limit` on everything that can be called. Wrong use raises."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tidegate import (
    AsyncLimiter,
    ConfigError,
    CostError,
    KeyInvalid,
    Limiter,
    ManualClock,
    Policy,
    PolicyError,
    RateLimited,
    TidegateError,
)

BOTH = pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
Kind = Any


@BOTH
def test_a_function_keeps_its_name_and_signature(kind: Kind) -> None:
    limiter = kind(policies={"mail": "2/hour"})

    @limiter.limit("mail", key=lambda user, *args, **kwargs: user)
    def send_mail(user: str, text: str = "hello", *, loud: bool = False) -> str:
        """Sends it."""
        return f"{user}: {text}"

    assert (send_mail.__name__, send_mail.__doc__) == ("send_mail", "Sends it.")
    assert str(inspect.signature(send_mail)) == "(user: 'str', text: 'str' = 'hello', *, loud: 'bool' = False) -> 'str'"
    assert not inspect.iscoroutinefunction(send_mail)
    assert [send_mail("alice"), send_mail("alice", loud=True)] == ["alice: hello"] * 2
    with pytest.raises(RateLimited) as caught:
        send_mail("alice")
    assert (caught.value.decision.policy, caught.value.decision.key) == ("mail", "alice")
    assert send_mail("bob", "hi") == "bob: hi"


@BOTH
def test_an_async_function_stays_async(kind: Kind) -> None:
    limiter = kind()

    @limiter.limit("2/hour", key=lambda user: user)
    async def fetch(user: str) -> str:
        await asyncio.sleep(0)
        return user

    async def main() -> None:
        assert inspect.iscoroutinefunction(fetch)
        assert await asyncio.gather(fetch("a"), fetch("a"), fetch("b")) == ["a", "a", "b"]
        with pytest.raises(RateLimited):
            await fetch("a")

    asyncio.run(main())


def test_an_async_function_of_a_blocking_limiter_does_not_block(redis_url: str, prefix: str) -> None:
    limiter = Limiter(redis_url, prefix=prefix, timeout=60.0)

    @limiter.limit("100/hour", key="all")
    async def work() -> None: ...

    async def main() -> None:
        admitted = await asyncio.gather(*[work() for _ in range(150)], return_exceptions=True)
        assert sum(one is None for one in admitted) == 100

    asyncio.run(main())


@BOTH
def test_methods_of_every_kind(kind: Kind) -> None:
    limiter = kind()

    class Service:
        @limiter.limit("1/hour", key=lambda self, user: user)
        def plain(self, user: str) -> str:
            return user

        @classmethod
        @limiter.limit("1/hour", key=lambda cls, user: f"{cls.__name__} {user}")
        def of_class(cls, user: str) -> str:
            return user

        @staticmethod
        @limiter.limit("1/hour", key=lambda user: f"static {user}")
        def static(user: str) -> str:
            return user

    for method in (Service().plain, Service.of_class, Service.static):
        assert method("a") == "a"
        with pytest.raises(RateLimited):
            method("a")


@BOTH
def test_generators_of_every_kind(kind: Kind) -> None:
    limiter = kind(policies={"one": "concurrency 1", "many": "1/hour"})

    def stream(policy: str) -> Callable[[], Iterator[int]]:
        @limiter.limit(policy, key="k")
        def numbers() -> Iterator[int]:
            yield from (1, 2)

        return numbers

    def async_stream(policy: str) -> Callable[[], AsyncIterator[int]]:
        @limiter.limit(policy, key="k")
        async def numbers() -> AsyncIterator[int]:
            yield 1
            yield 2

        return numbers

    assert list(stream("many")()) == [1, 2]
    with pytest.raises(RateLimited):
        list(stream("many")())

    # A hold lasts as long as the stream.
    held = stream("one")
    assert list(held()) == list(held()) == [1, 2]
    running = held()
    assert next(running) == 1
    with pytest.raises(RateLimited):
        list(held())
    del running
    assert list(held()) == [1, 2]

    async def main() -> None:
        limiter.clear("many", "k") if isinstance(limiter, Limiter) else await limiter.clear("many", "k")
        assert [number async for number in async_stream("many")()] == [1, 2]
        with pytest.raises(RateLimited):
            assert [number async for number in async_stream("many")()]
        held = async_stream("one")
        running = held()
        assert await anext(running) == 1
        with pytest.raises(RateLimited):
            assert [number async for number in held()]
        await running.aclose()  # type: ignore[attr-defined]
        assert [number async for number in held()] == [1, 2]

    asyncio.run(main())


@BOTH
def test_concurrency_is_held_while_the_function_runs(kind: Kind) -> None:
    limiter = kind(policies={"export": "concurrency 1"})

    @limiter.limit("export", key="k")
    def export(nested: bool = False) -> bool:
        return export() if nested else True

    assert export() and export()
    with pytest.raises(RateLimited):
        export(nested=True)
    assert export()

    @limiter.limit("export", key="async")
    async def export_async() -> None:
        await asyncio.sleep(0.001)

    async def main() -> None:
        await export_async()
        ended = await asyncio.gather(export_async(), export_async(), return_exceptions=True)
        assert [type(one) for one in ended] == [type(None), RateLimited]
        await export_async()

    asyncio.run(main())


def test_the_cost_may_be_a_function() -> None:
    limiter = Limiter(policies={"tokens": "10/hour"})

    @limiter.limit("tokens", key="k", cost=lambda text: len(text))
    def complete(text: str) -> int:
        return len(text)

    assert complete("1234567") == 7
    with pytest.raises(RateLimited):
        complete("1234567")
    assert limiter.peek("tokens", "k").remaining == 3


def test_a_leaky_bucket_delays_the_function() -> None:
    limiter = Limiter(policies={"paced": "leaky-bucket 50/s"})

    @limiter.limit("paced", key="k")
    def go() -> float:
        return time.monotonic()

    @limiter.limit("paced", key="a")
    async def go_async() -> float:
        return time.monotonic()

    async def main() -> list[float]:
        return list(await asyncio.gather(*[go_async() for _ in range(4)]))

    for times in ([go() for _ in range(4)], sorted(asyncio.run(main()))):
        assert times[3] - times[0] >= 0.055


def test_a_shadow_policy_admits_every_call() -> None:
    limiter = Limiter(clock=ManualClock())
    runs = [limiter.limit(Policy("1/hour", shadow=True), key="k")(lambda: True)() for _ in range(3)]
    assert runs == [True] * 3


def test_wrong_use_raises() -> None:
    limiter = Limiter(policies={"mail": "5/minute"})

    with pytest.raises(TypeError, match=r"write @limiter\.limit"):
        limiter.limit(lambda: None, key="k")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        limiter.limit("mail")  # type: ignore[call-arg]
    with pytest.raises(PolicyError, match="neither a policy of this limiter"):
        limiter.limit("male", key="k")
    with pytest.raises(PolicyError, match="fortnight"):
        limiter.limit("5/fortnight", key="k")
    with pytest.raises(TypeError, match="key must be a function"):
        limiter.limit("mail", key=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="below @staticmethod"):
        limiter.limit("mail", key="k")(staticmethod(lambda: None))
    with pytest.raises(TypeError, match="must stand above a function"):
        limiter.limit("mail", key="k")(5)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="must stand above a function"):
        limiter.limit("mail", key="k")(Limiter)

    def forgets(user: str) -> None: ...

    @limiter.limit("mail", key=forgets)  # type: ignore[arg-type]
    def send_mail(user: str) -> None: ...

    with pytest.raises(KeyInvalid, match=r"forgets of .*send_mail returned nothing \(None\)"):
        send_mail("alice")

    async def late(user: str) -> str:
        return user

    with pytest.raises(KeyInvalid, match=r"late of .* returned an object of type coroutine"):
        limiter.limit("mail", key=late)(lambda user: None)("alice")  # type: ignore[arg-type]
    with pytest.raises(CostError, match=r"is 1.5 \(float\)"):
        limiter.limit("mail", key="k", cost=lambda: 1.5)(lambda: None)()  # type: ignore[arg-type, return-value]
    assert limiter.peek("mail", "alice").remaining == 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *[({"cost": cost}, CostError) for cost in (0, -1, "5", True, 1.5, 2**53, 2**60, 2**64)],
        ({"key": "half \ud800"}, KeyInvalid),
        ({"key": "k" * 70_000}, KeyInvalid),
    ],
    ids=lambda given: repr(given)[:24],
)
def test_a_wrong_constant_is_an_error_where_it_is_written(options: dict[str, Any], error: type[TidegateError]) -> None:
    arguments = {"key": "k", "cost": 1, **options}
    for limiter in (Limiter(), AsyncLimiter()):
        with pytest.raises(error) as written:
            limiter.limit("5/s", **arguments)
        with pytest.raises(error) as called:
            Limiter().check("5/s", arguments["key"], cost=arguments["cost"])
        assert str(written.value) == str(called.value)


def test_a_cost_may_be_a_whole_number_of_another_library() -> None:
    class Five:
        def __index__(self) -> int:
            return 5

    limiter = Limiter(clock=ManualClock())
    for cost in (Five(), lambda: Five()):
        limiter.limit("9/s", key="k", cost=cost)(lambda: None)()  # type: ignore[call-overload]
        assert limiter.peek("9/s", "k").remaining == 4
        limiter.clear("9/s", "k")


class Callable_:
    """An object that is called like an async function."""

    def __init__(self, during: list[int], limiter: Limiter) -> None:
        self.during, self.limiter = during, limiter

    async def __call__(self) -> str:
        await asyncio.sleep(0)
        self.during.append(self.limiter.peek("p", "k").remaining)
        return "done"


def below_a_sync_wrapper(function: Any, *, wraps: bool) -> Any:
    def wrapper() -> Any:
        return function()

    return functools.wraps(function)(wrapper) if wraps else wrapper


@pytest.mark.parametrize("sort", ["object", "partial", "wraps", "plain"])
def test_a_hold_lasts_as_long_as_what_a_function_returns_runs(sort: str) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})
    during: list[int] = []
    inner = Callable_(during, limiter)

    async def function() -> str:
        return await inner()

    sorts: dict[str, Any] = {
        "object": inner,
        "partial": functools.partial(inner),
        "wraps": below_a_sync_wrapper(function, wraps=True),
        "plain": below_a_sync_wrapper(function, wraps=False),
    }
    limited = limiter.limit("p", key="k")(sorts[sort])

    async def main() -> None:
        for _ in range(2):
            assert await limited() == "done"
            assert limiter.peek("p", "k").remaining == 1
        first = asyncio.ensure_future(limited())
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await limited()
        await first

    asyncio.run(main())
    assert during == [0, 0, 0]
    assert limiter.peek("p", "k").remaining == 1


@pytest.mark.parametrize("policy", ["concurrency 1", "9/minute"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_async_generator_gets_what_is_sent_and_ends_within_its_hold(policy: str, wrapped: bool) -> None:
    limiter = Limiter(policies={"p": policy})
    seen: list[Any] = []

    async def generator() -> AsyncIterator[Any]:
        try:
            seen.append((yield 1))
            try:
                yield 2
            except KeyError:
                seen.append("thrown")
            yield 3
        finally:
            await asyncio.sleep(0)
            seen.append(limiter.peek("p", "k").remaining)

    function: Any = below_a_sync_wrapper(generator, wraps=False) if wrapped else generator
    limited = limiter.limit("p", key="k")(function)
    held = 0 if policy == "concurrency 1" else 8

    async def main() -> None:
        items = limited()
        assert await items.asend(None) == 1
        assert await items.asend("sent") == 2
        assert await items.athrow(KeyError()) == 3
        # The generator is closed early, and cleans up within its hold.
        await items.aclose()
        assert seen == ["sent", "thrown", held]
        if held == 0:
            assert limiter.peek("p", "k").remaining == 1

    asyncio.run(main())


@BOTH
@pytest.mark.parametrize("sort", ["function", "coroutine", "generator", "async generator"])
@pytest.mark.parametrize("held", [False, True])
def test_a_class_leaves_room_for_others(kind: Kind, sort: str, held: bool) -> None:
    notation = "concurrency 10" if held else "fixed-window 10/hour"
    limiter = kind(policies={"jobs": Policy(notation, priorities={"batch": "80%"})}, clock=ManualClock())
    left: list[int] = []

    def run(work: Any, *args: Any) -> None:
        if sort == "function":
            work(*args)
        elif sort == "generator":
            list(work(*args))
        elif sort == "coroutine":
            asyncio.run(work(*args))
        else:

            async def items() -> None:
                assert [item async for item in work(*args)] == [1]

            asyncio.run(items())

    # Notes the units that a call of the class may still take while the function runs. 8 of the 10 units stay free.
    blocking = limiter if isinstance(limiter, Limiter) else limiter.to_blocking()

    def note() -> None:
        left.append(blocking.peek("jobs", "k", cost=1, priority="batch").remaining)

    def function(name: str | None = None, cost: int = 1) -> None:
        note()

    async def coroutine(name: str | None = None, cost: int = 1) -> None:
        note()

    def generator(name: str | None = None, cost: int = 1) -> Iterator[int]:
        note()
        yield 1

    async def async_generator(name: str | None = None, cost: int = 1) -> AsyncIterator[int]:
        note()
        yield 1

    work: Any = {f.__name__.replace("_", " "): f for f in (function, coroutine, generator, async_generator)}[sort]
    of_a_class = limiter.limit("jobs", key="k", cost=lambda name=None, cost=1: cost, priority="batch")(work)
    run(of_a_class)
    with pytest.raises(RateLimited) as caught:
        run(of_a_class, None, 3)
    assert caught.value.decision.remaining == (2 if held else 1)
    named = limiter.limit("jobs", key="k", priority=lambda name=None, cost=1: name, cost=3)(work)
    with pytest.raises(RateLimited):
        run(named, "batch")
    # A call without a class may take the units that the class leaves free.
    run(named, None)
    assert left == [1, 0]


def test_a_class_that_no_call_could_have_is_an_error_where_it_is_written() -> None:
    limiter = Limiter(
        policies={
            "api": Policy("10/minute", priorities={"batch": "30%"}),
            "llm": Policy("10/minute; 100 tokens/minute", priorities={"batch": "30%"}),
            "plain": "10/minute",
        }
    )
    with pytest.raises(ConfigError, match="did you mean"):
        limiter.limit("api", key="k", priority="bach")
    with pytest.raises(ConfigError, match="no classes"):
        limiter.limit("plain", key="k", priority="batch")
    with pytest.raises(TypeError, match="priority must be text"):
        limiter.limit("api", key="k", priority=5)  # type: ignore[arg-type]
    # The cost is a function of the arguments, so its number is not known yet.
    with pytest.raises(ConfigError, match="did you mean"):
        limiter.limit("llm", key="k", cost=lambda tokens: {"tokens": tokens}, priority="bach")

    @limiter.limit("llm", key="k", cost=lambda tokens: {"tokens": tokens}, priority="batch")
    def ask(tokens: int) -> int:
        return tokens

    assert ask(70) == 70
    with pytest.raises(RateLimited):
        ask(1)
    with pytest.raises(ConfigError, match=r"the priority of .*wrong is 5 \(int\)"):

        @limiter.limit("api", key="k", priority=lambda: 5)  # type: ignore[arg-type, return-value]
        def wrong() -> None: ...

        wrong()
    with pytest.raises(ConfigError, match="did you mean"):
        limiter.limit("api", key="k", priority=lambda: "bach")(lambda: None)()
    assert limiter.peek("api", "k").remaining == 10
