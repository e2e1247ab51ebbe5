"""The code of a user. `mypy --strict` reads it and nothing runs it. Every `type: ignore` here must be needed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import aiohttp
import httpx
import requests
from typing_extensions import assert_type

from tidegate import (
    AsyncHold,
    AsyncLimiter,
    Attempt,
    Decision,
    Hold,
    Limit,
    Limiter,
    LimitState,
    ManualClock,
    Policy,
    PolicyError,
    RateLimited,
    TidegateError,
    lint,
)
from tidegate.aiohttp import paced
from tidegate.httpx import AsyncPacedTransport, PacedTransport
from tidegate.llm import anthropic_preset, openai_preset
from tidegate.outgoing import Observation
from tidegate.requests import PacedAdapter
from tidegate.wsgi import App, TidegateMiddleware, header

clock = ManualClock(now=1_700_000_000.0)
clock.advance(5)
policy = Policy([Limit("gcra", 100, period=1.0, burst=200), "5/3s"], block_for="10m", shadow=True)
limiter = Limiter("memory://", policies={"login": "20/minute; 5/3s", "api": policy}, deny_cache=0, clock=clock)
limiter = Limiter.from_file("tidegate.yaml", store=None, on_store_error="open")

decision = limiter.check("login", "alice", cost=1, meta=b"agent")
assert_type(decision, Decision)
assert_type(decision.retry_after, float | None)
assert_type(decision.next_after, float | None)
assert_type(limiter.check("login", "alice", 5, partial=True).granted, int)
assert_type(decision.limits[0].over, int)
assert_type(decision.limits, tuple[LimitState, ...])
assert_type(decision.decisions, tuple[Decision, ...])
assert_type(limiter.check_all([("login", "alice"), (policy, "10.0.0.7", 3)]), Decision)
entries = [("login", "alice"), ("api", "10.0.0.7", 3)]
assert_type(limiter.check_all(entries), Decision)
assert_type(limiter.journal("login", "alice"), list[Attempt])
assert_type(lint("tidegate.yaml")[0].line, int | None)

with limiter.hold("exports", "alice") as hold:
    assert_type(hold, Hold)

Limiter(timeout="soon")  # type: ignore[arg-type]
Limiter(time_out=1.0)  # type: ignore[call-arg]
Limiter.from_file("tidegate.yaml", policies={})
limiter.check("login", 5)  # type: ignore[arg-type]
limiter.check("login")  # type: ignore[call-arg]
limiter.limit("5/minute")  # type: ignore[call-arg]
decision.allowed = True  # type: ignore[misc]


@limiter.limit("5/minute", key=lambda user, *args, **kwargs: user, cost=2, priority=lambda user, text: None)
def send_mail(user: str, text: str) -> int:
    return len(text)


assert_type(send_mail("alice", "hello"), int)
send_mail("alice", 5)  # type: ignore[arg-type]


def learned() -> None:
    for said in Observation.from_headers({"Retry-After": "7"}, status=503, max_learned_wait=60):
        assert_type(said.retry_after, float | None)
        assert_type(said.remaining, int | None)
        assert_type(said.scope, str)


def limited(app: App) -> TidegateMiddleware:
    TidegateMiddleware(app, "login", limiter=limiter, cost="1")  # type: ignore[arg-type]
    TidegateMiddleware(app, "login", limiter=limiter, costs=1)  # type: ignore[call-arg]
    return TidegateMiddleware(app, "5/minute", key=header("X-API-Key"), methods=["POST"], prefix="web", timeout=0.1)


# Names of policies


named: Limiter[Literal["free", "pro"]] = Limiter(policies={"free": "5/minute", "pro": policy}, log_refusals=True)
assert_type(named.check("free", "alice"), Decision)
named.check(Policy("5/minute"), "alice")
named.check("fre", "alice")  # type: ignore[arg-type]
named.peek("fre", "alice")  # type: ignore[arg-type]
named.limit("fre", key="all")  # type: ignore[arg-type]
assert_type(named.to_async(), AsyncLimiter[Literal["free", "pro"]])
Limiter[Literal["free"]](policies={"fre": "5/minute"})  # type: ignore[dict-item]
by_name: dict[Literal["free"], str] = {"free": "5/minute"}
assert_type(Limiter(policies=by_name), Limiter[Literal["free"]])
# Without a type for them, names are any text.
assert_type(Limiter(policies={"free": "5/minute"}), Limiter[str])
assert_type(Limiter(), Limiter)
assert_type(Limiter.from_file("tidegate.yaml"), Limiter)


def takes_any(any_limiter: Limiter) -> Decision:
    return any_limiter.check("5/minute", "alice")


takes_any(named)


class Service:
    @limiter.limit(policy, key="all")
    async def fetch(self, user: str) -> bytes:
        return user.encode()

    @limiter.limit(policy, key="all")
    async def stream(self) -> AsyncIterator[bytes]:
        yield b""


async def main() -> None:
    async with AsyncLimiter("redis://127.0.0.1", policies={"login": "5/s"}) as waiting:
        assert_type(await waiting.check("login", "alice"), Decision)
        assert_type(
            await asyncio.gather(waiting.check("login", "a"), waiting.check("login", "b")), "tuple[Decision, Decision]"
        )
        assert_type(await asyncio.create_task(waiting.peek("login", "alice")), Decision)
        assert_type(await asyncio.wait_for(waiting.acquire("login", "alice", timeout=5.0), 10), Decision)
        async with waiting.hold("exports", "alice") as held:
            assert_type(held, AsyncHold)
        assert_type(await waiting.hold("exports", "alice"), AsyncHold)
        assert_type(await Service().fetch("alice"), bytes)
        assert_type(waiting.to_blocking(), Limiter)
        try:
            await waiting.refund("login", "alice")
        except PolicyError as error:
            assert_type(error.column, int | None)
        except RateLimited as limited:
            assert_type(limited.decision, Decision)
        except TidegateError as any_of_them:
            assert_type(any_of_them.code, str)


class CountedTokens:
    def feed(self, chunk: bytes, /) -> None: ...

    def end(self) -> int | None:
        return None


async def calls_that_go_out() -> None:
    with httpx.Client(transport=PacedTransport(limiter, "login", key=lambda request: request.url.host, http2=True)):
        ...
    transport = AsyncPacedTransport(limiter.to_async(), lambda request: None, settle=lambda response: CountedTokens())
    async with httpx.AsyncClient(transport=transport):
        ...
    requests.Session().mount("https://", PacedAdapter(limiter, None, timeout=None, cost={"tokens": 5}, pool_block=True))
    aiohttp.ClientSession(middlewares=[paced(limiter, policy, retries=2, on_wait=lambda decision, seconds: None)])
    PacedTransport(limiter, "login", timeout=5, **openai_preset(tokenizer=list, priority=lambda request: "batch"))
    assert_type(anthropic_preset(units=("tokens",))["respond"], bool)
    openai_preset(units=("words",))  # type: ignore[arg-type]
    PacedTransport(limiter)  # type: ignore[call-arg]
    PacedTransport(limiter, "login", retries="2")  # type: ignore[arg-type]
    PacedTransport(limiter, "login", retry=2)  # type: ignore[call-arg]
    httpx.Client(transport=transport)  # type: ignore[arg-type]
    paced(limiter, 5)  # type: ignore[arg-type]
