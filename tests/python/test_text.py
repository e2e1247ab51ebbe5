"""Texts that UTF-8 cannot encode, and texts that are too long for a message."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidegate import (
    AsyncLimiter,
    ConfigError,
    CostError,
    Decision,
    KeyInvalid,
    Limit,
    Limiter,
    Policy,
    PolicyError,
    RateLimited,
    TidegateError,
    lint,
    rollout,
)
from tidegate._tidegate import ClientIp, Headers, anonymous, hashed, restore_decision

# Half a surrogate pair. Python's texts may have it, and UTF-8 cannot encode it.
HALF = "a\ud800"
LONG = "k" * 60_000
# A message shows at most this many characters of a text.
MOST = 64

CALLS: dict[str, tuple[type[TidegateError], Callable[[Any], Any]]] = {
    "check, key": (KeyInvalid, lambda one: one.check("1/s", HALF)),
    "check, policy": (PolicyError, lambda one: one.check(HALF, "k")),
    "check, meta": (ConfigError, lambda one: one.check("1/s", "k", meta=HALF)),
    "peek, key": (KeyInvalid, lambda one: one.peek("1/s", HALF)),
    "peek, policy": (PolicyError, lambda one: one.peek(HALF, "k")),
    "charge, key": (KeyInvalid, lambda one: one.charge("1/s", HALF, 1)),
    "charge, policy": (PolicyError, lambda one: one.charge(HALF, "k", 1)),
    "refund, key": (KeyInvalid, lambda one: one.refund("1/s", HALF)),
    "refund, policy": (PolicyError, lambda one: one.refund(HALF, "k")),
    "check_all, key": (KeyInvalid, lambda one: one.check_all([("1/s", "k"), ("1/s", HALF)])),
    "check_all, policy": (PolicyError, lambda one: one.check_all([(HALF, "k")])),
    "acquire, key": (KeyInvalid, lambda one: one.acquire("1/s", HALF)),
    "acquire, policy": (PolicyError, lambda one: one.acquire(HALF, "k")),
    "hold, key": (KeyInvalid, lambda one: one.hold("concurrency 1", HALF)),
    "hold, policy": (PolicyError, lambda one: one.hold(HALF, "k")),
    "block, key": (KeyInvalid, lambda one: one.block("1/s", HALF, 1)),
    "block, policy": (PolicyError, lambda one: one.block(HALF, "k", 1)),
    "block, seconds": (PolicyError, lambda one: one.block("1/s", "k", HALF)),
    "unblock, key": (KeyInvalid, lambda one: one.unblock("1/s", HALF)),
    "unblock, policy": (PolicyError, lambda one: one.unblock(HALF, "k")),
    "clear, key": (KeyInvalid, lambda one: one.clear("1/s", HALF)),
    "clear, policy": (PolicyError, lambda one: one.clear(HALF, "k")),
    "journal, key": (KeyInvalid, lambda one: one.journal("1/s", HALF)),
    "journal, policy": (PolicyError, lambda one: one.journal(HALF, "k")),
    "waiting, key": (KeyInvalid, lambda one: one.waiting("1/s", HALF)),
    "waiting, policy": (PolicyError, lambda one: one.waiting(HALF, "k")),
    "policy": (PolicyError, lambda one: one.policy(HALF)),
    "limit, policy": (PolicyError, lambda one: one.limit(HALF, key="k")),
}
MAKERS: dict[str, tuple[type[TidegateError], Callable[[], Any]]] = {
    "Policy, notation": (PolicyError, lambda: Policy(HALF)),
    "Policy, notations": (PolicyError, lambda: Policy(["1/s", HALF])),
    "Policy, name": (PolicyError, lambda: Policy("1/s", name=HALF)),
    "Policy, on_store_error": (PolicyError, lambda: Policy("1/s", on_store_error=HALF)),
    "Policy, block_for": (PolicyError, lambda: Policy("1/s", block_for=HALF)),
    "Limit, algorithm": (PolicyError, lambda: Limit(HALF, 1, 1.0)),
    "Limit, period": (PolicyError, lambda: Limit("gcra", 1, HALF)),
    "Limiter, store": (ConfigError, lambda: Limiter(f"redis://{HALF}")),
    "Limiter, stores": (ConfigError, lambda: Limiter(["redis://h", f"redis://{HALF}"])),
    "Limiter, prefix": (ConfigError, lambda: Limiter(prefix=HALF)),
    "Limiter, on_store_error": (ConfigError, lambda: Limiter(on_store_error=HALF)),
    "Limiter, policies, name": (PolicyError, lambda: Limiter(policies={HALF: "1/s"})),
    "Limiter, policies, notation": (PolicyError, lambda: Limiter(policies={"p": HALF})),
    "Limiter, policies, dict": (PolicyError, lambda: Limiter(policies={"p": {"limits": HALF}})),
    "Limiter.from_file": (PolicyError, lambda: Limiter.from_file(f"{HALF}.yaml")),
    "AsyncLimiter.from_file": (PolicyError, lambda: AsyncLimiter.from_file(f"{HALF}.yaml")),
    "lint": (PolicyError, lambda: lint(f"{HALF}.yaml")),
    "rollout, old": (ConfigError, lambda: rollout(f"redis://{HALF}", "redis://h", 1)),
    "rollout, new": (ConfigError, lambda: rollout("redis://h", f"redis://{HALF}", 1)),
    "headers": (ConfigError, lambda: Headers(HALF)),
    "trusted_proxies": (ConfigError, lambda: ClientIp([HALF])),
    "hashed": (KeyInvalid, lambda: hashed(HALF)),
    "anonymous": (KeyInvalid, lambda: anonymous(HALF)),
}


def raised(kind: type[TidegateError], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    # The error can be printed and pickled.
    shown = f"{caught.value} {caught.value!r}"
    assert len(shown.encode()) < 2_000
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return shown


@pytest.mark.parametrize(("kind", "call"), CALLS.values(), ids=CALLS.keys())
def test_half_a_surrogate_pair_in_a_call(kind: type[TidegateError], call: Callable[[Any], Any]) -> None:
    raised(kind, lambda: call(Limiter()))

    async def awaited() -> Any:
        made = call(AsyncLimiter())
        return await made

    raised(kind, lambda: asyncio.run(awaited()))


@pytest.mark.parametrize(("kind", "make"), MAKERS.values(), ids=MAKERS.keys())
def test_half_a_surrogate_pair_elsewhere(kind: type[TidegateError], make: Callable[[], Any]) -> None:
    raised(kind, make)


def test_half_a_surrogate_pair_in_a_key_of_a_web_layer() -> None:
    from tidegate.asgi import TidegateMiddleware
    from tidegate.asgi import claim as claim_of
    from web import call_asgi

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("no request is admitted")

    for key in (lambda scope: HALF, claim_of("sub", of=lambda scope: {"sub": HALF})):
        for cost in (1, lambda scope: 1):
            limited = TidegateMiddleware(app, "1/s", key=key, cost=cost)
            # The client is at fault.
            assert call_asgi(limited).status == 400


def test_a_pickled_decision_with_half_a_surrogate_pair() -> None:
    function, arguments = Limiter().check("1/s", "k").__reduce__()  # type: ignore[misc]
    assert function is restore_decision
    changed: list[Any] = list(arguments)  # type: ignore[call-overload]
    changed[1] = HALF
    raised(KeyInvalid, lambda: restore_decision(*changed))


def test_long_keys_are_shortened_in_messages() -> None:
    limiter = Limiter(policies={"p": "1/hour", "held": "concurrency 1"})
    limiter.check("p", LONG)
    denied = limiter.check("p", LONG)
    assert denied.key == LONG, "the Decision has it whole"
    error = RateLimited(denied)
    with limiter.hold("held", LONG) as hold:
        texts = [str(error), repr(error), repr(denied), repr(hold), repr(copy.copy(error))]
        with pytest.raises(RateLimited) as full:
            limiter.hold("held", LONG)
        texts.append(str(full.value))
    for text in texts:
        assert "k" * MOST in text and "k" * (MOST + 1) not in text, text
        assert "60000 characters" in text
    assert str(RateLimited(limiter.check("p", "alice"))).startswith("'p' denies 'alice': ")


def test_keys_that_are_no_text_are_not_shown() -> None:
    secret = b"tg_live_0123456789"
    wrong: list[Any] = [secret, bytearray(secret), memoryview(secret), [secret], (secret,), {"key": secret}]
    limiter = Limiter()
    for key in wrong:

        @limiter.limit("1/s", key=lambda key=key: key)  # type: ignore[misc]
        def limited() -> None: ...

        for shown in (
            raised(KeyInvalid, lambda key=key: limiter.check("1/s", key)),  # type: ignore[misc]
            raised(KeyInvalid, limited),
        ):
            assert "0123" not in shown and "b'" not in shown
            assert type(key).__name__ in shown
        shown = raised(CostError, lambda key=key: limiter.check("1/s", "k", key))  # type: ignore[misc]
        assert "0123" not in shown
    shown = raised(CostError, lambda: limiter.check("1/s", "k", LONG))  # type: ignore[arg-type]
    assert "k" * (MOST + 1) not in shown
    assert isinstance(limiter.check("1/s", "k"), Decision)


@pytest.mark.parametrize("key", [LONG, b"0123456789" * 100, [b"0123456789"]], ids=["text", "bytes", "list"])
def test_keys_in_the_messages_of_web_layers(key: Any) -> None:
    from tidegate.web.admission import checked_key
    from tidegate.web.limit import LimitEntry, ResolvedPolicy

    resolved = ResolvedPolicy("1/s", Limiter(), "", "a test")
    entry = LimitEntry(resolved, lambda request: key, "key_of", 1)
    if isinstance(key, str):
        assert checked_key(entry, key) == key
        return
    shown = raised(KeyInvalid, lambda: checked_key(entry, key))
    assert "0123" not in shown and "key_of" in shown
