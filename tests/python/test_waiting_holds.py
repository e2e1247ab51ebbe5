"""Holds that wait for room, settle their charge, and end at their longest age."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tidegate import AsyncLimiter, ConfigError, Limiter, ManualClock, Policy, RateLimited

POLICIES = {"one": "concurrency 1 ttl 30s", "llm": "500/minute; 100000 tokens/minute; concurrency 8"}


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, redis_url: str) -> str:
    return "memory://" if request.param == "memory" else redis_url


@pytest.fixture
def limiter(store: str, prefix: str) -> Iterator[Limiter]:
    with Limiter(store, prefix=prefix, policies=POLICIES, timeout=20.0) as limiter:
        yield limiter


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_in_the_order_in_which_they_came(limiter: Limiter) -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with limiter.hold("one", "k", timeout=None):
            order.append(number)

    first = limiter.hold("one", "k")
    threads: list[threading.Thread] = []
    for number in (1, 2, 3):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        until(lambda: limiter.waiting("one", "k") == len(threads))
    first.release()
    for thread in threads:
        thread.join(20)
    assert order == [1, 2, 3]


def test_and_give_up_in_time_or_at_once(limiter: Limiter) -> None:
    with limiter.hold("one", "k", 1, 5.0):
        with pytest.raises(RateLimited):
            limiter.hold("one", "k")
        began = time.monotonic()
        with pytest.raises(RateLimited):
            limiter.hold("one", "k", timeout=0.2)
        assert time.monotonic() - began >= 0.199
    with limiter.hold("one", "k", timeout=20.0) as hold:
        assert hold.decision.granted == 1


def test_a_task_that_is_cancelled_takes_nothing(store: str, prefix: str) -> None:
    async def main() -> None:
        async with AsyncLimiter(store, prefix=prefix, policies=POLICIES, timeout=20.0) as limiter:
            first = await limiter.hold("one", "k")

            async def take() -> bool:
                async with limiter.hold("one", "k", timeout=None) as hold:
                    return hold.decision.allowed

            cancelled = asyncio.create_task(take())
            while limiter.waiting("one", "k") < 1:
                await asyncio.sleep(0.001)
            waits = asyncio.create_task(take())
            while limiter.waiting("one", "k") < 2:
                await asyncio.sleep(0.001)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await first.release()
            assert await asyncio.wait_for(waits, 20)

    asyncio.run(main())


def test_a_hold_settles_once(limiter: Limiter) -> None:
    def left() -> list[int]:
        return [limit.remaining for limit in limiter.peek("llm", "org", {"tokens": 1}).limits]

    with pytest.raises(ZeroDivisionError), limiter.hold("llm", "org", cost={"tokens": 1200}) as hold:
        assert left() == [499, 98_800, 7]
        hold.settle({"tokens": 934})
        assert left() == [499, 99_066, 7]
        with pytest.raises(ConfigError):
            hold.settle({"tokens": 1})
        raise ZeroDivisionError
    assert left() == [499, 99_066, 8], "what was charged stays, with an exception too"


def test_a_hold_of_a_task_settles_once(store: str, prefix: str) -> None:
    async def main() -> None:
        async with AsyncLimiter(store, prefix=prefix, policies=POLICIES, timeout=20.0) as limiter:
            async with limiter.hold("llm", "org", cost={"tokens": 1200}) as hold:
                await hold.settle({"tokens": 2000})
                with pytest.raises(ConfigError):
                    await hold.settle(1)
            assert [limit.remaining for limit in (await limiter.peek("llm", "org", {"tokens": 1})).limits][1] == 98_000

    asyncio.run(main())


def test_a_hold_has_a_longest_age(store: str, prefix: str) -> None:
    clock = ManualClock(1_700_000_000.0)
    with Limiter(store, prefix=prefix, clock=clock, timeout=20.0) as limiter:
        policy = Policy("concurrency 1 ttl 30s", max_hold="1m")
        hold = limiter.hold(policy, "k")
        for _ in range(95):
            clock.advance(1.0)
        assert hold.lost
        limiter.hold(policy, "k").release()


def test_a_class_waits_for_what_it_leaves_free(limiter: Limiter) -> None:
    policy = Policy("concurrency 2 ttl 30s", priorities={"batch": "50%"})
    first = limiter.hold(policy, "k")
    with pytest.raises(RateLimited):
        limiter.hold(policy, "k", timeout=0.05, priority="batch")
    limiter.hold(policy, "k").release()
    first.release()
    limiter.hold(policy, "k", timeout=20.0, priority="batch").release()


def test_ctrl_c_ends_the_wait(store: str, prefix: str) -> None:
    # The wait is in pieces only on the main thread, which handles signals.
    import _thread

    with Limiter(store, prefix=prefix, policies=POLICIES, timeout=20.0) as limiter, limiter.hold("one", "k"):

        def interrupt() -> None:
            until(lambda: limiter.waiting("one", "k") == 1)
            _thread.interrupt_main()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            limiter.hold("one", "k", timeout=None)
        thread.join(20)
        until(lambda: limiter.waiting("one", "k") == 0)
