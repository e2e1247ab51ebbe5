"""Compares `tidegate.limits` with the storages of `limits` itself, over the same histories."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import pickle
import random
import time
from typing import Any

import limits
import pytest
from limits import aio, strategies
from limits.storage import MemoryStorage, RedisStorage, storage_from_string

import tidegate.limits
from client import Servers
from tidegate import AsyncLimiter, ConfigError, CostError, Limiter, ManualClock, PolicyError, StoreError
from web import call_wsgi

STRATEGIES = ["fixed-window", "moving-window", "sliding-window-counter"]
# A whole number of minutes, hours and days.
MIDNIGHT = 1_700_006_400.0
GONE = "tidegate+redis://127.0.0.1:1/0"


class Pair:
    """One strategy over a storage of `limits` and over Tidegate, with one clock."""

    def __init__(self, strategy: str, reference: Any, storage: Any) -> None:
        kind = strategies.STRATEGIES[strategy]
        self.strategy, self.reference = strategy, kind(reference)
        asynchronous = isinstance(storage, aio.storage.Storage)
        self.tidegate: Any = aio.strategies.STRATEGIES[strategy](storage) if asynchronous else kind(storage)

    def both(self, loop: asyncio.AbstractEventLoop, call: str, *given: Any, **more: Any) -> tuple[Any, Any]:
        answer = getattr(self.tidegate, call)(*given, **more)
        if inspect.isawaitable(answer):
            answer = loop.run_until_complete(answer)
        return getattr(self.reference, call)(*given, **more), answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(now=MIDNIGHT)
    monkeypatch.setattr(time, "time", clock.now)
    return clock


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("scheme", ["tidegate+", "async+tidegate+"])
def test_the_sliding_window_counter_resets_when_limits_says(
    scheme: str, store: str, prefix: str, clock: ManualClock, loop: asyncio.AbstractEventLoop
) -> None:
    storage = storage_from_string(scheme + store, prefix=prefix, clock=clock, timeout=20.0)
    pair = Pair("sliding-window-counter", MemoryStorage(), storage)
    item = limits.RateLimitItemPerMinute(10)
    for elapsed, left in ((1, 59), (16, 44), (45, 15)):
        clock.advance(MIDNIGHT + elapsed - clock.now())
        assert pair.both(loop, "hit", item, "k") == (True, True)
        theirs, ours = pair.both(loop, "get_window_stats", item, "k")
        assert ours.reset_time - clock.now() == pytest.approx(left, abs=1e-5)
        assert theirs.reset_time == pytest.approx(ours.reset_time, abs=1e-5)
    clock.advance(20)
    given = storage.get_sliding_window(item.key_for("k"), 60)
    previous, previous_ttl, current, current_ttl = (
        loop.run_until_complete(given) if inspect.isawaitable(given) else given
    )
    assert (previous, current) == (3, 0)
    assert (previous_ttl, current_ttl) == pytest.approx((55.0, 115.0), abs=1e-5)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_random_histories_have_the_answers_of_the_memory_storage(
    strategy: str, seed: int, store: str, prefix: str, clock: ManualClock, loop: asyncio.AbstractEventLoop
) -> None:
    chance = random.Random(f"{strategy} {seed}")
    scheme = chance.choice(["tidegate+", "async+tidegate+"])
    storage = storage_from_string(scheme + store, prefix=prefix, clock=clock, timeout=20.0, deny_cache=0.0)
    pair = Pair(strategy, MemoryStorage(), storage)
    item = limits.RateLimitItemPerMinute(chance.choice([1, 7, 40, 100_000]), chance.choice([1, 3]))
    costs = [1, 1, 2, 3] if item.amount < 1_000 else [1, 999, 4_321, 20_000]
    if strategy == "moving-window" and item.amount == 100_000 and store.startswith("postgresql:"):
        with pytest.raises(PolicyError, match="at most 256 kB"):
            pair.both(loop, "hit", item, "k", cost=1)
        return
    for step in range(60):
        # Never exactly at the end of an entry, because there the storages of `limits` differ from each other.
        clock.advance(chance.choice([0.0, 0.5, 3.25, 17.125, 59.0, 61.0]) + chance.randrange(1, 1_000) / 1_000_000)
        call = chance.choice(["hit", "hit", "hit", "test", "get_window_stats"])
        if call != "get_window_stats":
            cost = chance.choice(costs)
            theirs, ours = pair.both(loop, call, item, "k", cost=cost)
            assert ours == theirs, (step, call, cost)
            continue
        theirs, ours = pair.both(loop, call, item, "k")
        assert ours.remaining == theirs.remaining, step
        if strategy == "sliding-window-counter" and theirs.remaining == item.amount:
            # The rest of the last window counts for nothing, so Tidegate reports that nothing is used.
            assert clock.now() - 1e-5 <= ours.reset_time <= theirs.reset_time + 1e-5, step
        elif strategy == "sliding-window-counter" or theirs.remaining < item.amount:
            assert ours.reset_time == pytest.approx(theirs.reset_time, abs=2e-5), step


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_histories_have_the_answers_of_the_redis_storage(
    strategy: str, prefix: str, monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop
) -> None:
    chance, real = random.Random(strategy), time.time
    with Servers("single", clock=True) as servers:
        ahead = MIDNIGHT * 2 - real()
        monkeypatch.setattr(time, "time", lambda: real() + ahead)
        servers.clock(ahead)
        url = servers.url
        storage = storage_from_string(f"tidegate+{url}", prefix=prefix, timeout=20.0, deny_cache=0.0)
        pair = Pair(strategy, RedisStorage(url), storage)
        # A day is long compared with the time of the test. The windows of Redis begin with their first hit, here at
        # midnight, where those of Tidegate begin.
        item = limits.RateLimitItemPerDay(40)
        # With 0.618 of a window left, no count up to 40 weighs nearly a whole number, so seconds make no difference.
        for jump in (0, 24 + 24 * 0.381966, 24, 48 + 24 * 0.618034):
            ahead += jump * 3600
            servers.clock(jump * 3600)
            for step in range(40):
                call = chance.choice(["hit", "hit", "test", "get_window_stats"])
                if call != "get_window_stats":
                    theirs, ours = pair.both(loop, call, item, "k", cost=chance.choice([1, 1, 3]))
                    assert ours == theirs, (jump, step, call)
                    continue
                theirs, ours = pair.both(loop, call, item, "k")
                assert ours.remaining == theirs.remaining, (jump, step)
                if theirs.remaining < item.amount:
                    # In the first millisecond of its window RedisStorage reports a reset at once.
                    apart = (ours.reset_time - theirs.reset_time + 43_200) % 86_400 - 43_200
                    assert abs(apart) < 120, (jump, step)


def test_large_counts_are_exact(store: str, prefix: str, clock: ManualClock) -> None:
    storage = storage_from_string(f"tidegate+{store}", prefix=prefix, clock=clock, timeout=20.0)
    for charged in (1, 2, 7_745, 7_746, 59_999, 1_000_003):
        key = f"{charged}/9999999/1/minute"
        assert storage.acquire_sliding_window_entry(key, 9_999_999, 60, charged)
        assert storage.get_sliding_window(key, 60)[2] == charged
    clock.advance(71.25)
    for charged in (2, 7_745, 7_746, 59_999, 1_000_003):
        key = f"{charged}/9999999/1/minute"
        assert storage.acquire_sliding_window_entry(key, 9_999_999, 60, 5)
        previous, _, current, _ = storage.get_sliding_window(key, 60)
        assert (previous, current) == (charged, 5)


@pytest.mark.parametrize("asynchronous", ["", "async+"])
def test_every_scheme_of_the_core_is_registered(asynchronous: str) -> None:
    for scheme in (
        *["memory://", "redis://h", "rediss://h", "valkey://h", "valkeys://h"],
        *["unix:///run/x.sock", "redis+unix:///run/x.sock", "valkey+unix:///run/x.sock"],
        *[f"{name}+sentinel://h1:1,h2:2/name/0" for name in ("redis", "rediss", "valkey", "valkeys")],
        *[f"{name}+cluster://h1:1,h2:2" for name in ("redis", "rediss", "valkey", "valkeys")],
    ):
        storage: Any = storage_from_string(f"{asynchronous}tidegate+{scheme}")
        assert isinstance(storage.limiter, AsyncLimiter if asynchronous else Limiter), scheme


def test_schemes_of_other_topologies_count(prefix: str) -> None:
    with Servers("sentinel") as servers:
        storage = storage_from_string(f"tidegate+{servers.url}", prefix=prefix, timeout=20.0)
        assert [storage.incr("a", 60), storage.incr("a", 60)] == [1, 2]
        valkey = storage_from_string(f"tidegate+valkey{servers.url[5:]}", prefix=prefix, timeout=20.0)
        assert valkey.get("a/2/1/minute") == 0 and valkey.incr("a", 60) == 3


@pytest.mark.parametrize("asynchronous", ["", "async+"])
def test_what_the_packages_read_of_a_storage(asynchronous: str, store: str, prefix: str) -> None:
    storage: Any = storage_from_string(f"{asynchronous}tidegate+{store}", key_prefix=prefix)
    assert storage.storage is storage.limiter
    assert storage.key_prefix == prefix
    assert storage_from_string(f"{asynchronous}tidegate+{store}").key_prefix == "tg"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="mean the same"):
        storage_from_string(f"{asynchronous}tidegate+{store}", key_prefix="a", prefix="b")


def test_a_storage_can_be_pickled_and_copied(redis_url: str, prefix: str) -> None:
    storage: Any = storage_from_string(f"tidegate+{redis_url}", prefix=prefix, timeout=20.0, wrap_exceptions=True)
    item = limits.parse("5 per 3 minutes")
    limiter = strategies.MovingWindowRateLimiter(storage)
    assert limiter.hit(item, "k")
    for twin in (pickle.loads(pickle.dumps(limiter)), copy.copy(limiter), copy.deepcopy(limiter)):
        assert twin.get_window_stats(item, "k").remaining == 4
        assert (twin.storage.key_prefix, twin.storage.wrap_exceptions) == (prefix, True)
    assert pickle.loads(pickle.dumps(storage)).reset() == 1
    memory: Any = storage_from_string("tidegate+memory://", prefix=prefix)
    memory.incr("k", 60)
    assert copy.copy(memory).incr("k", 60) == 2
    assert pickle.loads(pickle.dumps(memory)).incr("k", 60) == 1
    waiting: Any = pickle.loads(pickle.dumps(storage_from_string(f"async+tidegate+{redis_url}", prefix=prefix)))
    assert isinstance(waiting, tidegate.limits.AsyncTidegateStorage)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fraction_of_a_unit_is_rounded_up(strategy: str, store: str, prefix: str) -> None:
    limiter: Any = strategies.STRATEGIES[strategy](
        storage_from_string(f"tidegate+{store}", prefix=prefix, timeout=20.0)
    )
    item = limits.parse("4 per day")
    assert limiter.hit(item, "k", cost=0.5)
    assert limiter.hit(item, "k", cost=2.0)
    assert limiter.get_window_stats(item, "k").remaining == 1
    assert limiter.hit(item, "k", cost=0)
    assert limiter.get_window_stats(item, "k").remaining == 1
    assert not limiter.hit(item, "k", cost=1.001)
    for wrong in (-1, math.nan, "1"):
        with pytest.raises((CostError, TypeError)):
            limiter.hit(item, "other", cost=wrong)


def test_a_lost_store_raises_unless_another_choice_is_given() -> None:
    lost = storage_from_string(GONE)
    with pytest.raises(StoreError):
        lost.incr("k", 10)
    wrapped: Any = storage_from_string(GONE, wrap_exceptions=True)
    for call in (
        lambda: wrapped.incr("k", 10),
        lambda: wrapped.acquire_entry("k", 5, 10),
        lambda: wrapped.acquire_sliding_window_entry("k", 5, 10),
        lambda: wrapped.get_sliding_window("k", 10),
        lambda: wrapped.get_moving_window("k", 5, 10),
    ):
        with pytest.raises(limits.errors.StorageError):
            call()
    assert storage_from_string(GONE, on_store_error="local").incr("k", 10) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_fallback_of_flask_limiter_starts(strategy: str, prefix: str) -> None:
    from flask import Flask
    from flask_limiter import Limiter as FlaskLimiter

    with Servers("single") as servers:
        app = Flask("app")
        limiter = FlaskLimiter(
            lambda: "k",
            app=app,
            storage_uri=f"tidegate+{servers.url}",
            storage_options={"prefix": prefix, "timeout": 10.0},
            strategy=strategy,
            in_memory_fallback=["2/day"],
        )

        @app.get("/")
        @limiter.limit("5/day")
        def index() -> str:
            return "index"

        assert call_wsgi(app).status == 200
        servers.kill()
        assert [call_wsgi(app).status for _ in range(4)] == [200, 200, 429, 429]
        servers.start()
        deadline = time.monotonic() + 20
        # Flask-Limiter asks this before it goes back to the store.
        while not limiter.storage.check():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_unknown_key_expires_now(store: str, prefix: str) -> None:
    storage = storage_from_string(f"tidegate+{store}", prefix=prefix, timeout=20.0)
    assert abs(storage.get_expiry("no such key") - time.time()) < 60


@pytest.mark.parametrize("scheme", ["tidegate+", "async+tidegate+"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_units_are_an_error_and_counted_as_nothing_else(
    scheme: str, strategy: str, loop: asyncio.AbstractEventLoop
) -> None:
    with pytest.raises(ValueError, match="100 tokens/minute"):
        limits.parse("100 tokens/minute")
    storage: Any = storage_from_string(f"{scheme}memory://")
    kinds: Any = aio.strategies.STRATEGIES if scheme.startswith("async") else strategies.STRATEGIES
    limiter = kinds[strategy](storage)

    def call(name: str, *given: Any, **more: Any) -> Any:
        answer = getattr(limiter, name)(*given, **more)
        return loop.run_until_complete(answer) if inspect.isawaitable(answer) else answer

    limit = limits.parse("10/minute")
    for cost in ({"tokens": 5}, {"cost": 5}, {}, [5], "5"):
        with pytest.raises(CostError, match="a number, since the limits of this package count no units"):
            call("hit", limit, "k", cost=cost)
    assert call("get_window_stats", limit, "k").remaining == 10
