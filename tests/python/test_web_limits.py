"""`tidegate.limits`: the interface of storages in `limits`, and the packages that are built on it."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import limits
import pytest
from limits import aio, strategies
from limits.storage import storage_from_string

import tidegate.limits  # registers the schemes
from tidegate import StoreError
from web import call_asgi, call_wsgi

STRATEGIES = ["fixed-window", "moving-window", "sliding-window-counter"]


@pytest.fixture(params=["sync", "async"])
def made(request: pytest.FixtureRequest, store: str, prefix: str) -> Any:
    """Yields a storage, its strategies, and a function that awaits an answer if necessary."""
    scheme = "tidegate+" if request.param == "sync" else "async+tidegate+"
    storage = storage_from_string(scheme + store, prefix=prefix, timeout=10.0)
    loop = asyncio.new_event_loop()

    def wait(answer: Any) -> Any:
        return loop.run_until_complete(answer) if inspect.isawaitable(answer) else answer

    module = strategies if request.param == "sync" else aio.strategies
    yield storage, module.STRATEGIES, wait
    loop.close()


def test_every_member_is_there(made: Any) -> None:
    storage, _, _ = made
    module = limits.storage if isinstance(storage, limits.storage.Storage) else aio.storage
    for base in (module.Storage, module.MovingWindowSupport, module.SlidingWindowCounterSupport):
        assert isinstance(storage, base)
        assert not getattr(type(storage), "__abstractmethods__", None)


def test_the_counter(made: Any) -> None:
    storage, _, wait = made
    assert wait(storage.get("k")) == 0
    assert wait(storage.incr("k", 10)) == 1
    assert wait(storage.incr("k", 10, 4)) == 5
    assert wait(storage.incr("k", 10, 1)) == 6
    assert wait(storage.get("k")) == 6
    assert 8 < wait(storage.get_expiry("k")) - time.time() <= 10
    wait(storage.clear("k"))
    assert wait(storage.get("k")) == 0
    assert wait(storage.check()) is True


def test_reset_forgets_what_this_storage_has_counted(made: Any) -> None:
    storage, _, wait = made
    for key in ("a", "b"):
        wait(storage.incr(key, 10))
    assert wait(storage.reset()) == 2
    assert [wait(storage.get(key)) for key in ("a", "b")] == [0, 0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy(made: Any, name: str) -> None:
    storage, kinds, wait = made
    limiter = kinds[name](storage)
    item = limits.parse("10 per 2 hours")
    identity = (name, "alice")
    assert wait(limiter.get_window_stats(item, *identity)).remaining == 10
    assert all(wait(limiter.hit(item, *identity)) for _ in range(7))
    stats = wait(limiter.get_window_stats(item, *identity))
    assert stats.remaining == 3
    assert 0 <= stats.reset_time - time.time() <= 7200 + 1
    assert wait(limiter.test(item, *identity, cost=3))
    assert not wait(limiter.test(item, *identity, cost=4))
    assert not wait(limiter.hit(item, *identity, cost=4)) or name == "fixed-window"
    if name != "fixed-window":
        assert wait(limiter.get_window_stats(item, *identity)).remaining == 3, "a denial costs nothing"
        assert wait(limiter.hit(item, *identity, cost=3))
    assert not wait(limiter.hit(item, *identity))
    assert not wait(limiter.test(item, *identity))
    assert wait(limiter.hit(item, name, "bob"))
    wait(limiter.clear(item, *identity))
    assert wait(limiter.get_window_stats(item, *identity)).remaining == 10
    assert not wait(limiter.hit(item, *identity, cost=11))


@pytest.mark.parametrize("name", STRATEGIES)
def test_used_units_return(made: Any, name: str) -> None:
    storage, kinds, wait = made
    limiter = kinds[name](storage)
    item = limits.RateLimitItemPerSecond(2)
    while wait(limiter.hit(item, "k")):
        pass
    moment = wait(limiter.get_window_stats(item, "k")).reset_time
    # A two-counter estimate needs two windows to give back all units.
    time.sleep(max(0.0, moment - time.time()) + (1.2 if name == "sliding-window-counter" else 0.05))
    assert wait(limiter.hit(item, "k"))


def test_the_moving_window_begins_with_its_oldest_entry(made: Any) -> None:
    storage, kinds, wait = made
    limiter = kinds["moving-window"](storage)
    item = limits.RateLimitItemPerMinute(5)
    before = time.time()
    assert wait(limiter.hit(item, "k"))
    after = time.time()
    time.sleep(0.2)
    assert wait(limiter.hit(item, "k"))
    began, count = wait(storage.get_moving_window(item.key_for("k"), 5, 60))
    assert count == 2 and before - 0.15 < began < after + 0.15


def test_another_process_reads_the_same_counts(store: str, prefix: str) -> None:
    if store.startswith("memory"):
        pytest.skip("a store in memory belongs to one process")
    one, other = (storage_from_string(f"tidegate+{store}", prefix=prefix, timeout=10.0) for _ in range(2))
    item = limits.parse("5 per 3 minutes")
    limiter = strategies.FixedWindowRateLimiter(one)
    assert limiter.hit(item, "k")
    assert other.get(item.key_for("k")) == 1
    assert abs(other.get_expiry(item.key_for("k")) - time.time() - 180) < 5
    other.clear(item.key_for("k"))
    assert one.get(item.key_for("k")) == 0


def test_the_error_of_an_unreachable_store_can_be_wrapped() -> None:
    url = "tidegate+redis://127.0.0.1:1/0"
    gone = storage_from_string(url, on_store_error="raise")
    assert gone.check() is False
    with pytest.raises(StoreError):
        gone.incr("k", 10)
    wrapped = storage_from_string(url, on_store_error="raise", wrap_exceptions=True)
    with pytest.raises(limits.errors.StorageError):
        wrapped.incr("k", 10)
    assert isinstance(gone, tidegate.limits.TidegateStorage)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_flask_limiter_runs_on_it(store: str, prefix: str, strategy: str) -> None:
    from flask import Flask
    from flask_limiter import Limiter

    app = Flask("app")
    limiter = Limiter(
        lambda: "k",
        app=app,
        storage_uri=f"tidegate+{store}",
        storage_options={"prefix": prefix, "timeout": 10.0},
        strategy=strategy,
        headers_enabled=True,
    )

    @app.get("/")
    @limiter.limit("3/minute")
    def index() -> str:
        return "index"

    seen = [call_wsgi(app) for _ in range(4)]
    assert [one.status for one in seen] == [200, 200, 200, 429]
    assert [one["X-RateLimit-Remaining"] for one in seen] == ["2", "1", "0", "0"]
    limiter.reset()
    assert call_wsgi(app).status == 200


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window"])
def test_slowapi_runs_on_it(store: str, prefix: str, strategy: str) -> None:
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

    app = Starlette()
    limiter = Limiter(
        key_func=lambda: "k",
        storage_uri=f"tidegate+{store}",
        storage_options={"prefix": prefix, "timeout": 10.0},
        strategy=strategy,
        headers_enabled=True,
    )
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    async def index(request: Request) -> PlainTextResponse:
        return PlainTextResponse("index")

    app.router.add_route("/", limiter.limit("3/minute")(index))
    assert [call_asgi(app).status for _ in range(4)] == [200, 200, 200, 429]
