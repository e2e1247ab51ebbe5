"""`tidegate.langchain`: models of LangChain wait for their turn."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("langchain_core", reason="langchain-core needs Python 3.11")

from langchain_core.language_models import FakeListChatModel

from tidegate import AsyncLimiter, ConfigError, CostError, Limiter, ManualClock, RateLimited
from tidegate.langchain import RateLimiter


def test_a_model_waits_for_its_turn(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"model": "token-bucket 20/s burst 2"}, prefix=prefix, timeout=5.0)
    model = FakeListChatModel(responses=["hello"], rate_limiter=RateLimiter(limiter, "model", key="k"))
    for _ in range(3):
        assert model.invoke("hi").content == "hello"
    assert asyncio.run(model.ainvoke("hi")).content == "hello"
    limiter.close()


def test_no_call_is_made_beyond_the_limit() -> None:
    clock = ManualClock()
    limiter = Limiter(policies={"model": "fixed-window 3/minute"}, clock=clock)
    rate_limiter = RateLimiter(limiter, "model", timeout=1.0)
    model = FakeListChatModel(responses=["hello"], rate_limiter=rate_limiter)
    assert [model.invoke("hi").content for _ in range(3)] == ["hello"] * 3
    with pytest.raises(RateLimited) as caught:
        model.invoke("hi")
    assert caught.value.decision.retry_after == 60
    with pytest.raises(RateLimited):
        asyncio.run(model.ainvoke("hi"))
    assert rate_limiter.acquire(blocking=False) is False
    assert asyncio.run(rate_limiter.aacquire(blocking=False)) is False
    clock.advance(60)
    assert rate_limiter.acquire(blocking=False) is True


def test_a_blocked_call_goes_on_in_its_turn() -> None:
    clock = ManualClock()
    limiter = Limiter(policies={"model": "fixed-window 1/minute"}, clock=clock)
    rate_limiter = RateLimiter(limiter, "model", timeout=None)
    assert rate_limiter.acquire()
    done = threading.Event()
    thread = threading.Thread(target=lambda: done.set() if rate_limiter.acquire() else None)
    thread.start()
    assert not done.is_set()
    clock.advance(60)
    thread.join(60)
    assert done.is_set()


def test_key_cost_and_priority_may_be_functions() -> None:
    limiter = AsyncLimiter(policies={"model": {"limits": ["10 tokens/minute"], "priorities": {"batch": "50%"}}})
    users = iter(["alice", "alice", "bob"])
    rate_limiter = RateLimiter(
        limiter, "model", key=lambda: next(users), cost=lambda: {"tokens": 4}, priority=lambda: "batch"
    )
    assert [rate_limiter.acquire(blocking=False) for _ in range(3)] == [True, False, True]


def test_an_option_without_effect_is_an_error() -> None:
    limiter = Limiter()
    with pytest.raises(ConfigError, match="holds no units"):
        RateLimiter(limiter, "concurrency 2")
    with pytest.raises(ConfigError, match="leaky-bucket"):
        RateLimiter(limiter, "leaky-bucket 5/s")
    with pytest.raises(ConfigError, match="timeout"):
        RateLimiter(limiter, "5/s", timeout=-1)
    with pytest.raises(CostError, match="never admits a call of 6"):
        RateLimiter(limiter, "5/s", cost=6).acquire()
