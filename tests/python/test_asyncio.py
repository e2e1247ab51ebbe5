"""AsyncLimiter in programs with asyncio: awaited, gathered, in several loops, and never blocking one."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from client import Servers
from loops import LOOPS, run
from tidegate import AsyncLimiter, ClosedError, CostError, Decision, ManualClock, Policy, RateLimited, StoreError


@pytest.mark.parametrize("loop", LOOPS)
def test_all_calls(loop: str, store: str, prefix: str) -> None:
    async def main() -> None:
        policies = {"api": Policy("fixed-window 10/minute", journal=5), "exports": "concurrency 1"}
        clock = ManualClock()
        async with AsyncLimiter(store, policies=policies, prefix=prefix, timeout=5.0, clock=clock) as limiter:
            assert await limiter.peek("api", "a", cost=10)
            assert (await limiter.check("api", "a", cost=4, meta="x")).remaining == 6
            assert await limiter.refund("api", "a", cost=2) is None  # type: ignore[func-returns-value]
            assert (await limiter.peek("api", "a")).remaining == 8
            assert (await limiter.charge("api", "a", 20)).remaining == 0
            assert not await limiter.check("api", "a")
            assert [one.meta for one in await limiter.journal("api", "a")] == [None, None, "x"]  # a charge too
            await limiter.clear("api", "a")
            # A settle gives back nothing of a charge in the same moment as a clear, so the clock moves on.
            clock.advance(0.001)
            await limiter.settle(await limiter.check("api", "a", cost=5), 2)
            assert (await limiter.peek("api", "a")).remaining == 8
            await limiter.block("api", "a", 30)
            assert (await limiter.peek("api", "a")).retry_after == 30.0
            await limiter.unblock("api", "a")
            assert await limiter.acquire("api", "a", cost=8, timeout=1.0)
            assert not await limiter.acquire("api", "a", timeout=1.0)
            denied = await limiter.check_all([("api", "b"), ("api", "a")])
            assert [one.allowed for one in denied.decisions] == [True, False]
            async with limiter.hold("exports", "a") as hold:
                assert hold.decision and not hold.released
                with pytest.raises(RateLimited):
                    async with limiter.hold("exports", "a"):
                        pass
            assert hold.released
            taken = await limiter.hold("exports", "a")
            async with taken:
                assert not await limiter.peek("exports", "a")
            assert await limiter.peek("exports", "a")
            await limiter.ping()
            assert limiter.policy("api").journal == 5
        with pytest.raises(ClosedError):
            await limiter.check("api", "a")

    run(main, loop)


def test_a_file_is_read_and_reloaded(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "tidegate.yaml"
        path.write_text("policies: {login: 2/hour}")
        limiter = AsyncLimiter.from_file(path)
        assert (await limiter.check("login", "a")).remaining == 1
        path.write_text("policies: {login: 5/hour}")
        await limiter.reload()
        assert (await limiter.peek("login", "a")).remaining == 4

    run(main)


def test_a_call_behaves_like_a_coroutine(store: str, prefix: str) -> None:
    limiter = AsyncLimiter(store, policies={"api": "5/hour"}, prefix=prefix, timeout=5.0)

    async def main() -> None:
        never = limiter.check("api", "never")
        assert asyncio.iscoroutine(never)
        never.close()
        assert await asyncio.create_task(limiter.check("api", "a"))
        assert all(await asyncio.gather(*[limiter.check("api", "a") for _ in range(4)]))
        assert not await asyncio.wait_for(limiter.check("api", "a"), timeout=10)
        assert not await asyncio.shield(limiter.check("api", "a"))
        again = limiter.check("api", "a")
        await again
        with pytest.raises(RuntimeError, match="twice"):
            await again
        # A call is not sent before it is awaited.
        later = limiter.check("api", "b")
        assert (await limiter.peek("api", "b")).remaining == 5
        await later
        assert (await limiter.peek("api", "b")).remaining == 4
        unused = limiter.check("api", "b")
        unused.close()
        with pytest.raises(ValueError, match="thrown"):
            limiter.check("api", "b").throw(ValueError("thrown"))
        assert (await limiter.peek("api", "b")).remaining == 4

    run(main)
    # `asyncio.run` accepts a call like a coroutine.
    assert isinstance(asyncio.run(limiter.peek("api", "c")), Decision)


def test_a_call_that_was_not_awaited_warns() -> None:
    limiter = AsyncLimiter()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        limiter.check("1/s", "a")
    call = limiter.check("1/s", "a")
    with pytest.raises(TypeError, match="not awaited"):
        assert call
    call.close()
    holding = limiter.hold("concurrency 1", "a")
    with pytest.raises(TypeError, match="not awaited"):
        assert holding
    with pytest.warns(RuntimeWarning, match="never awaited"):
        del holding
        gc.collect()


def test_wrong_arguments_raise_before_the_call_is_awaited() -> None:
    limiter = AsyncLimiter()
    with pytest.raises(CostError):
        limiter.check("1/s", "a", 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        limiter.check(5, "a")  # type: ignore[arg-type]

    async def main() -> None:
        with pytest.raises(CostError):
            await limiter.check("1/s", "a", 0)

    run(main)


def test_an_immediate_answer_needs_no_loop_iteration() -> None:
    async def main() -> None:
        limiter = AsyncLimiter()
        iterations: list[bool] = []
        asyncio.get_running_loop().call_soon(iterations.append, True)
        for _ in range(100):
            await limiter.check("1000/s", "a")
        assert not iterations

    run(main)


def test_a_call_without_a_running_loop_raises() -> None:
    call = AsyncLimiter("redis://127.0.0.1:1").check("1/s", "a")
    with pytest.raises(RuntimeError, match="no running event loop"):
        call.send(None)


def test_concurrent_calls_are_admitted_exactly_up_to_the_limit(redis_url: str, prefix: str) -> None:
    async def main() -> None:
        limiter = AsyncLimiter(redis_url, policies={"api": "fixed-window 500/hour"}, prefix=prefix, timeout=60.0)
        answers = await asyncio.gather(*[limiter.check("api", "one") for _ in range(2_000)])
        assert sum(map(bool, answers)) == 500

    run(main)


def test_loops_in_several_threads_share_a_limiter(store: str, prefix: str) -> None:
    limiter = AsyncLimiter(store, policies={"api": "fixed-window 1000/hour"}, prefix=prefix, timeout=60.0)
    admitted: list[int] = []

    async def main() -> None:
        answers = await asyncio.gather(*[limiter.check("api", "one") for _ in range(400)])
        admitted.append(sum(map(bool, answers)))

    kinds = [*LOOPS, "asyncio", "uvloop"]
    threads = [threading.Thread(target=run, args=(main, kind)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == len(kinds) and sum(admitted) == 1_000


def test_a_limiter_works_in_one_loop_after_another(redis_url: str, prefix: str) -> None:
    limiter = AsyncLimiter(redis_url, policies={"api": "1000/hour"}, prefix=prefix, timeout=60.0)

    async def main() -> int:
        return (await limiter.check("api", "a")).remaining

    assert [run(main, kind) for kind in [*LOOPS] * 5] == list(range(999, 999 - 5 * len(LOOPS), -1))

    async def abandoned() -> None:
        waits = [asyncio.ensure_future(limiter.check("api", "a")) for _ in range(100)]
        await asyncio.sleep(0)
        del waits

    # A loop may be closed while calls are in flight.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(abandoned())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert run(main) < 1_000


def test_a_slow_server_does_not_block_the_loop() -> None:
    with Servers("single") as servers:

        async def main() -> None:
            limiter = AsyncLimiter(servers.url, policies={"api": "5/s"}, on_store_error="raise", timeout=2.0)
            await limiter.ping()
            servers.stop()
            call = asyncio.ensure_future(limiter.check("api", "a"))
            turns = 0
            while not call.done():
                await asyncio.sleep(0.005)
                turns += 1
            servers.cont()
            with pytest.raises(StoreError) as caught:
                await call
            assert caught.value.code == "store_timeout"
            assert turns > 10

        run(main)


def test_both_limiters_share_their_usage(store: str, prefix: str) -> None:
    limiter = AsyncLimiter(store, policies={"api": "5/hour"}, prefix=prefix, timeout=5.0)
    blocking = limiter.to_blocking()
    assert blocking.check("api", "a").remaining == 4

    async def main() -> None:
        assert (await limiter.check("api", "a")).remaining == 3
        assert (await blocking.to_async().check("api", "a")).remaining == 2

    run(main)


def test_a_task_of_a_call_can_be_shown() -> None:
    async def main() -> None:
        async with AsyncLimiter() as limiter:
            task = asyncio.ensure_future(limiter.check("5/minute", "a"))
            assert "coro=" in repr(task)
            await task
            assert "coro=" in repr(task)
            # asyncio may ask whether a task has a coroutine. Anyone else has forgotten an `await`.
            call = limiter.check("5/minute", "a")
            with pytest.raises(TypeError, match="not awaited"):
                bool(call)
            asking = eval("lambda given: bool(given)", {"__name__": "asyncio.base_tasks"})
            assert asking(call)
            await call

    # In debug mode asyncio shows the tasks with slow steps.
    asyncio.run(main(), debug=True)
