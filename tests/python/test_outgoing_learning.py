"""A limit that a response announces counts for every client of the limiter, in every process."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from client import Servers
from loops import until
from outgoing_clients import used
from strict_services import StrictServer, StrictService
from tidegate import AsyncLimiter, Limiter, ManualClock, RateLimited
from tidegate.httpx import AsyncPacedTransport
from tidegate.outgoing import Observation

# A policy that never refuses here.
WIDE = "10000/minute"


def said(service: StrictService, *fields: str, status: int = 200, times: int = 1, body: str = "") -> str:
    query = "".join(f"&field={quote(one)}" for one in fields)
    return f"{service.url}/say?status={status}&times={times}{query}&body={quote(body)}"


@pytest.mark.parametrize("policy", [None, WIDE])
def test_a_refusal_stops_every_client_for_as_long_as_it_says(
    outgoing: Any, service: StrictService, policy: Any
) -> None:
    with Limiter() as limiter, outgoing(limiter, policy) as one, outgoing(limiter, policy, timeout=0.1) as two:
        assert one.get(said(service, "Retry-After: 60", status=429)).status == 429
        with pytest.raises(RateLimited) as raised:
            two.get(service.url)
        assert 30 < (raised.value.decision.retry_after or 0) <= 60.1
    assert len(service.requests()) == 1


@pytest.mark.parametrize("policy", [None, WIDE])
def test_a_client_waits_for_as_long_as_a_refusal_says(outgoing: Any, service: StrictService, policy: Any) -> None:
    with Limiter() as limiter, outgoing(limiter, policy) as client:
        assert client.get(said(service, "Retry-After: 2", status=429)).status == 429
        assert client.get(service.url).status == 200
        refused, admitted = [at["at"] for at in service.requests()]
        assert admitted - refused >= 1.9


class Announced(Exception):
    """Ends a call before it waits."""


def test_what_all_callers_are_told_holds_for_every_key(outgoing: Any, strict: StrictServer) -> None:
    service, other = strict.service(), strict.service()
    waits: list[float] = []

    def announce(_: Any, seconds: float) -> None:
        waits.append(seconds)
        raise Announced

    with Limiter() as limiter, outgoing(limiter, WIDE, key="one") as one:
        assert one.get(said(service, "Retry-After: 60", "X-RateLimit-Global: true", status=429)).status == 429
        with outgoing(limiter, WIDE, key="two", timeout=0.1) as two, pytest.raises(RateLimited) as raised:
            two.get(service.url)
        assert 30 < (raised.value.decision.retry_after or 0) <= 60.1
        with outgoing(limiter, WIDE, key="two", timeout=100, on_wait=announce) as two:
            assert two.get(other.url).status == 200
            assert waits == []
            with pytest.raises(Announced):
                two.get(service.url)
        assert [30 < wait <= 60.1 for wait in waits] == [True]
    assert len(service.requests()) == 1


def test_a_client_waits_for_as_long_as_all_callers_are_told(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, WIDE, key="one") as one, outgoing(limiter, WIDE, key="two") as two:
        assert one.get(said(service, "Retry-After: 2", "X-RateLimit-Global: true", status=429)).status == 429
        assert two.get(service.url).status == 200
        refused, admitted = [at["at"] for at in service.requests()]
        assert admitted - refused >= 1.9


@pytest.mark.parametrize("policy", [None, WIDE])
def test_nothing_left_until_a_reset_means_wait(outgoing: Any, service: StrictService, policy: Any) -> None:
    fields = ["X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2"]
    with Limiter() as limiter, outgoing(limiter, policy) as client:
        assert client.get(said(service, *fields)).status == 200
        assert client.get(service.url).status == 200
        first, second = [at["at"] for at in service.requests()]
        assert second - first >= 1.9


def test_a_body_is_read_for_what_it_says(outgoing: Any, service: StrictService) -> None:
    info = '{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}]}}'
    for status, kind, learned in (
        (429, "application/json", True),
        (500, "application/json", False),
        (429, "text/plain", False),
    ):
        with Limiter() as limiter, outgoing(limiter, WIDE, timeout=5) as client:
            url = said(service, f"Content-Type: {kind}", status=status, body=info)
            assert client.get(f"{url}&kind={kind}").status == status
            if learned:
                with pytest.raises(RateLimited):
                    client.get(service.url)
            else:
                assert client.get(service.url).status == 200


INFO = '{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "60s"}]}}'


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_wait_in_the_head_is_learned_before_the_body_ends(outgoing: Any, service: StrictService, status: int) -> None:
    url = said(service, "Content-Type: application/json", "Retry-After: 60", status=status, body=INFO) + "&late=20"
    with Limiter() as limiter, outgoing(limiter, WIDE, timeout=0.1) as client:
        began = time.monotonic()
        stream = client.stream(url)
        assert (stream.status, time.monotonic() - began < 5) == (status, True)
        with pytest.raises(RateLimited):
            client.get(service.url)
        stream.close()
        assert time.monotonic() - began < 10
    assert len(service.targets()) == 1


@pytest.mark.parametrize("retries", [0, 1])
def test_a_body_that_comes_late_is_handed_on(outgoing: Any, service: StrictService, retries: int) -> None:
    # The body names its wait only at the end, and until then this 503 stops no one.
    url = said(service, "Content-Type: application/json", status=503, body=INFO) + "&late=6"
    with Limiter() as limiter, outgoing(limiter, "concurrency 2; 100/hour", timeout=0.1, retries=retries) as client:
        began = time.monotonic()
        stream, read = client.stream(url), b""
        assert (stream.status, time.monotonic() - began < 5) == (503, True)
        assert client.get(service.url).status == 200
        while chunk := stream.next():
            read += chunk
        stream.close()
        assert read == INFO.encode()
        # The caller gives up this response in the middle.
        client.stream(url + "&again=1").close()
        assert client.get(service.url).status == 200
        assert time.monotonic() - began < 20
    assert len(service.requests()) == 4


def test_an_origin_speaks_for_itself_alone(outgoing: Any, strict: StrictServer) -> None:
    one, two = strict.service(), strict.service()
    with Limiter() as limiter, outgoing(limiter, WIDE, timeout=0.1) as client:
        target = quote(said(two, "Retry-After: 60", status=429))
        assert client.get(f"{one.url}/redirect?to={target}", follow=True).status == 429
        assert client.get(one.url).status == 200
        with pytest.raises(RateLimited):
            client.get(two.url)


@pytest.mark.parametrize("key", ["account", lambda request: "account"])
def test_a_key_is_that_of_the_origin_that_was_asked(outgoing: Any, strict: StrictServer, key: Any) -> None:
    one, two = strict.service(), strict.service()
    with Limiter() as limiter, outgoing(limiter, "10/hour", key=key, timeout=0.1) as client:
        back = quote(f"{one.url}/back")
        assert client.get(f"{one.url}/redirect?to={quote(f'{two.url}/redirect?to={back}')}", follow=True).status == 200
        assert used(limiter, "10/hour", "account") == [2]
        assert used(limiter, "10/hour", two.url) == [1]
        target = quote(said(two, "Retry-After: 60", status=429))
        assert client.get(f"{one.url}/redirect?to={target}", follow=True).status == 429
        assert client.get(one.url).status == 200
        # A call that begins at the other origin has the key, too.
        assert client.get(two.url).status == 200
        assert used(limiter, "10/hour", "account") == [5]
        with pytest.raises(RateLimited):
            client.get(f"{one.url}/redirect?to={quote(two.url)}", follow=True)


def test_learning_can_be_turned_off_and_has_a_bound(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, WIDE, learn=False) as client:
        assert client.get(said(service, "Retry-After: 60", status=429)).status == 429
        assert client.get(service.url).status == 200
    with Limiter() as limiter, outgoing(limiter, WIDE, max_learned_wait=1) as client:
        assert client.get(said(service, "Retry-After: 600", status=429, times=9)).status == 429
        began = time.monotonic()
        assert client.get(service.url).status == 200
        assert time.monotonic() - began < 30


def test_units_and_classes_are_those_of_a_policy(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, None, cost={"tokens": 5}, priority="batch", timeout=0.1) as client:
        fields = ["x-ratelimit-limit-tokens: 10", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 1m0s"]
        assert client.get(said(service, *fields)).status == 200
        with pytest.raises(RateLimited):
            client.get(service.url)


def test_a_retry_waits_its_turn(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, None, retries=1) as client:
        assert client.get(said(service, "Retry-After: 1", status=429)).status == 200
        first, second = [at["at"] for at in service.requests()]
        assert second - first >= 1


def test_a_store_that_fails_while_it_learns_fails_no_request(outgoing: Any, service: StrictService) -> None:
    with Servers("single") as redis, Limiter(redis.url, on_store_error="raise", timeout=20.0) as limiter:
        with outgoing(limiter, WIDE) as client:
            threading.Timer(0.3, redis.kill).start()
            answer = client.get(said(service, "Retry-After: 60", status=429) + "&wait=1")
            assert answer.status == 429


def test_the_limits_of_a_service_are_kept_without_a_policy(outgoing: Any, strict: StrictServer) -> None:
    service = strict.service("fixed-window", 10, 2, "ietf")
    with Limiter() as limiter, outgoing(limiter, None) as client:
        # The first response announces the limit. All later calls keep it.
        assert client.get(service.url).status == 200
        for _ in range(3):
            assert {answer.status for answer in client.gather([service.url] * 9)} <= {200, 429}
        counts = service.counts()
        assert counts["admitted"] + counts["refused"] == 28
        assert counts["refused"] <= 2


def test_a_call_that_comes_late_to_its_turn_asks_the_application_once(service: StrictService) -> None:
    keys: list[str] = []

    def key(_: Any) -> str:
        keys.append("one")
        return "one"

    async def calls() -> None:
        clock = ManualClock(1_700_000_000.0)
        async with AsyncLimiter(clock=clock) as limiter:
            blocking, policy = limiter.to_blocking(), limiter.policy("gcra 1/s burst 1").paced()
            transport = AsyncPacedTransport(limiter, "gcra 1/s burst 1", key=key)
            async with httpx.AsyncClient(transport=transport) as client:
                assert (await client.get(service.url)).status_code == 200
                late = asyncio.create_task(client.get(service.url))
                await until(lambda: blocking.waiting(policy, "out:one") == 1)
                # The turn comes and the service refuses before the event loop goes on.
                clock.advance(5)
                end = time.monotonic() + 30
                while blocking.waiting(policy, "out:one") and time.monotonic() < end:
                    time.sleep(0.001)
                blocking.observe(policy, "out:one", Observation(retry_after=60))
                with pytest.raises(RateLimited):
                    await late
                assert blocking.peek(policy, "out:one").retry_after == pytest.approx(60)
        assert keys == ["one", "one"]

    asyncio.run(calls())
    assert len(service.requests()) == 1
