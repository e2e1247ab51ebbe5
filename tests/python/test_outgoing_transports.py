"""Options of outgoing calls, and features of single clients: HTTP/2, other transports, cancelled tasks, spans."""

from __future__ import annotations

import asyncio
import importlib
import pickle
import re
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from http2_server import Http2Server
from outgoing_clients import Aiohttp, AsyncHttpx, LoopClient, paced_policy, until, used
from spans import Spans
from strict_services import StrictService
from tidegate import AsyncLimiter, ConfigError, Limiter, Policy, PolicyError, RateLimited
from tidegate._tracing import trace_calls
from tidegate.aiohttp import paced
from tidegate.httpx import AsyncPacedTransport, PacedTransport
from tidegate.opentelemetry import traced
from tidegate.requests import PacedAdapter

# A bucket that gives back no unit while a test runs.
SLOW = "token-bucket 10/hour"


def test_without_a_policy_and_without_learning_nothing_is_limited(outgoing: Any) -> None:
    with Limiter() as limiter:
        with pytest.raises(ConfigError, match="nothing is limited"):
            outgoing(limiter, None, learn=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"timeout": -1}, ConfigError, "timeout is -1"),
        ({"margin": "1s"}, ConfigError, "margin is '1s'"),
        ({"max_learned_wait": "1h"}, ConfigError, "max_learned_wait is '1h'"),
        ({"retries": 1.5}, ConfigError, "retries is 1.5"),
        ({"retries": True}, ConfigError, "retries is True"),
        ({"learn": 1}, TypeError, "learn must be True or False, not 1"),
        ({"respond": "yes"}, TypeError, "respond must be True or False"),
        ({"key": 5}, TypeError, "key must be a function of the request or a text, not 5"),
        ({"settle": 5}, TypeError, "settle must be a function of a response, not 5"),
        ({"on_wait": 5}, TypeError, "on_wait must be a function"),
        ({"prefix": None}, TypeError, "prefix must be a str"),
        ({"cost": 0.5}, Exception, "cost"),
        ({"priority": "batch"}, Exception, "batch"),
        ({"time_out": 1}, TypeError, "has no option 'time_out': did you mean 'timeout'"),
    ],
)
def test_options_are_checked_where_they_are_written(options: Any, error: Any, message: str) -> None:
    with Limiter() as limiter:
        for make in (PacedTransport, AsyncPacedTransport, PacedAdapter, paced):
            with pytest.raises(error, match=re.escape(message)):
                make(limiter, SLOW, **options)


def test_policies_are_checked_where_they_are_written(outgoing: Any) -> None:
    with Limiter() as limiter:
        with pytest.raises(PolicyError, match="no policy"):
            outgoing(limiter, "unknown")
        with pytest.raises(ConfigError, match='write gcra with a burst of 1, as in "gcra 10/s burst 1"'):
            outgoing(limiter, "leaky-bucket 10/s burst 5")
        with pytest.raises(TypeError, match="policy must be a str, a Policy, a function of the request or None, not 5"):
            outgoing(limiter, 5)
        with pytest.raises(TypeError, match="limiter must be a Limiter or an AsyncLimiter"):
            outgoing("redis://", "1/s")


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_a_transport_may_wrap_another_one(name: str) -> None:
    package = pytest.importorskip(name)
    module = importlib.import_module(f"tidegate.{name}")
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(str(request.url))
        return package.Response(200, json={"used": 4})

    options: dict[str, Any] = {"settle": lambda response: 4, "transport": package.MockTransport(answer)}
    with Limiter() as limiter, package.Client(transport=module.PacedTransport(limiter, SLOW, **options)) as client:
        assert client.get("https://api.test/a").json() == {"used": 4}
        assert used(limiter, SLOW, "https://api.test") == [4]

        async def another() -> None:
            transport = module.AsyncPacedTransport(limiter, "concurrency 1; 10/hour", **options)
            async with package.AsyncClient(transport=transport) as client:
                for _ in range(2):
                    assert (await client.get("https://api.test/b")).json() == {"used": 4}

        asyncio.run(another())
        assert used(limiter, "concurrency 1; 10/hour", "https://api.test") == [0, 8]
    assert seen == ["https://api.test/a", *["https://api.test/b"] * 2]


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://API.test:80/a?b=@c", "http://api.test"),
        ("https://user:secret@api.test:443", "https://api.test"),
        ("https://api.test:80/", "https://api.test:80"),
        ("http://api.test?a=/b@c", "http://api.test"),
        ("http://[::1]:80/a", "http://[::1]"),
        ("http://[::1]:8080/a", "http://[::1]:8080"),
        ("https://bücher.test/", "https://xn--bcher-kva.test"),
    ],
)
def test_an_origin_is_written_in_one_way(url: str, origin: str) -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(200))
    with Limiter() as limiter, httpx.Client(transport=PacedTransport(limiter, SLOW, transport=inner)) as client:
        client.get(url)
        assert used(limiter, SLOW, origin) == [1]


def test_options_of_the_transport_reach_it(service: StrictService) -> None:
    with Limiter() as limiter:
        with pytest.raises(TypeError, match="got a transport, and http2 as well"):
            PacedTransport(limiter, SLOW, transport=httpx.HTTPTransport(), http2=True)
        transport = PacedTransport(limiter, SLOW, proxy=service.url)
        with httpx.Client(transport=transport) as client:
            # The proxy gets the whole URL. The key is the origin of the service behind it.
            assert client.get("http://api.test/a").json()["target"] == "http://api.test/a"
        assert used(limiter, SLOW, "http://api.test") == [1]


@pytest.mark.parametrize("respond", [False, True])
def test_http_2(respond: bool) -> None:
    with Http2Server() as server, Limiter() as limiter:
        options: dict[str, Any] = {"http1": False, "http2": True, "settle": lambda response: 2, "respond": respond}
        with httpx.Client(transport=PacedTransport(limiter, SLOW, **options)) as client:
            answers = [client.get(server.url) for _ in range(3)]
            assert [(one.http_version, one.text) for one in answers] == [("HTTP/2", "over HTTP/2")] * 3
        assert used(limiter, SLOW, server.url) == [6]

        async def several() -> list[str]:
            async with httpx.AsyncClient(transport=AsyncPacedTransport(limiter, "100/s", **options)) as client:
                responses = await asyncio.gather(*(client.get(server.url) for _ in range(20)))
                return [one.http_version for one in responses]

        assert asyncio.run(several()) == ["HTTP/2"] * 20
        # The blocking client has used one connection, and all calls of the other client share one.
        assert server.connections == 2


@pytest.mark.parametrize("kind", [AsyncHttpx, Aiohttp], ids=lambda kind: str(kind.name))
def test_a_request_that_is_cancelled_gives_its_turn_back(kind: Any, service: StrictService) -> None:
    policy = "token-bucket 1/hour burst 1"

    async def cancelled(client: LoopClient) -> None:
        tasks = [asyncio.ensure_future(client.acall("GET", service.url)) for _ in range(5)]
        while blocking.waiting(known, f"out:{service.url}") < 5:
            await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 5

    with Limiter() as blocking, kind(blocking, policy, timeout=None, learn=False) as client:
        known = paced_policy(blocking, policy)
        blocking.check(known, f"out:{service.url}")
        client.run(cancelled(client))
        until(client, lambda: blocking.waiting(known, f"out:{service.url}") == 0)
        assert service.requests() == []
        # No turn of a cancelled request stands before the next one.
        blocking.clear(known, f"out:{service.url}")
        assert client.get(service.url).status == 200


@pytest.mark.parametrize("kind", [AsyncHttpx, Aiohttp], ids=lambda kind: str(kind.name))
def test_a_stream_that_is_cancelled_ends_its_hold_and_is_settled(kind: Any, service: StrictService) -> None:
    policy = "concurrency 4; 10000/hour"
    url = f"{service.url}/stream?chunks=1000&gap=0.05"

    class Counting:
        seen = 0

        def feed(self, chunk: bytes) -> None:
            self.seen += 1

        def end(self) -> int:
            ends.append(self.seen)
            return 100

    ends: list[int] = []

    async def cancelled(client: LoopClient) -> None:
        tasks = [asyncio.ensure_future(client.acall("GET", url)) for _ in range(4)]
        while service.counts()["running"] < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(1000):
            if used(blocking, policy, service.url) == [0, 400]:
                break
            await asyncio.sleep(0.01)

    with Limiter() as blocking:
        with kind(blocking, policy, settle=lambda response: Counting(), learn=False) as client:
            client.run(cancelled(client))
        assert used(blocking, policy, service.url) == [0, 400]
        assert len(ends) == 4


def test_the_parts_of_a_body_of_aiohttp(service: StrictService) -> None:
    """Reads a body in every way that waits for data."""
    lines = [b"chunk %d\n" % number for number in range(12)]

    class Reader:
        chunks: list[bytes]

        def __init__(self) -> None:
            self.chunks = []
            readers.append(self)

        def feed(self, chunk: bytes) -> None:
            self.chunks.append(chunk)

        def end(self) -> int:
            return 1

    readers: list[Reader] = []

    async def read() -> None:
        middleware = paced(limiter, "1000/hour", settle=lambda response: Reader())
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            for gap in ("0", "0.002"):
                url = f"{service.url}/stream?chunks=12&gap={gap}"
                async with session.get(url) as response:
                    assert [line async for line in response.content] == lines
                async with session.get(url) as response:
                    assert b"".join([part async for part in response.content.iter_chunked(5)]) == b"".join(lines)
                async with session.get(url) as response:
                    assert b"".join([part async for part in response.content.iter_any()]) == b"".join(lines)
                async with session.get(url) as response:
                    assert b"".join([part async for part, _ in response.content.iter_chunks()]) == b"".join(lines)
                async with session.get(url) as response:
                    content = response.content
                    assert await content.readexactly(3) == b"chu"
                    assert await content.readuntil(b"1\n") == b"nk 0\nchunk 1\n"
                    assert await content.readline() == lines[2]
                    assert not content.at_eof()
                    assert await content.read() == b"".join(lines[3:])
                    assert content.at_eof() and await content.read() == b""
                    with pytest.raises(asyncio.IncompleteReadError):
                        await content.readexactly(1)
                async with session.get(url) as response:
                    assert await response.text() == b"".join(lines).decode()
                    assert await response.read() == b"".join(lines)

    with Limiter() as limiter:
        asyncio.run(read())
    assert [b"".join(one.chunks) for one in readers] == [b"".join(lines)] * 12


def test_a_session_with_an_adapter_is_not_pickled_and_a_response_is(service: StrictService) -> None:
    with Limiter() as limiter, requests.Session() as session:
        session.mount("http://", PacedAdapter(limiter, "concurrency 1"))
        response = session.get(service.url)
        copy = pickle.loads(pickle.dumps(response))
        assert (copy.json(), copy.status_code) == (response.json(), 200)
        with pytest.raises(TypeError, match="cannot be pickled: it has a limiter"):
            pickle.dumps(session)


def test_retries_of_urllib3_give_nothing_back() -> None:
    url = "http://127.0.0.1:1"
    with Limiter() as limiter, requests.Session() as session:
        session.trust_env = False
        for max_retries, units in ((0, 0), (1, 1)):
            session.mount("http://", PacedAdapter(limiter, SLOW, max_retries=max_retries))
            with pytest.raises(requests.ConnectionError):
                session.get(url)
            assert used(limiter, SLOW, url) == [units]


def test_cookies_and_histories_stay(service: StrictService) -> None:
    with Limiter() as limiter, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", PacedAdapter(limiter, "concurrency 1", settle=lambda response: None))
        url = f"{service.url}/say?status=403&field=Set-Cookie:a=b&field=Content-Type:application/json&body={{}}"
        assert session.get(url).json() == {}
        assert session.cookies.get_dict() == {"a": "b"}
        response = session.get(f"{service.url}/redirect?to=/end")
        assert [one.status_code for one in response.history] == [302]
        assert response.elapsed.total_seconds() > 0


def test_spans_cover_calls_that_go_out(service: StrictService, redis_url: str, prefix: str) -> None:
    spans = Spans()
    with Limiter(redis_url, prefix=prefix, timeout=20.0) as limiter:
        limiter = traced(limiter, tracer_provider=spans.provider)
        for policy in (SLOW, "concurrency 1"):
            with httpx.Client(transport=PacedTransport(limiter, policy)) as client:
                client.get(service.url)
    assert [one.name for one in spans.taken()] == ["tidegate.acquire", "tidegate.hold"]


def test_calls_are_counted_as_checks(outgoing: Any, service: StrictService) -> None:
    with Limiter(policies={"calls": SLOW}) as limiter, outgoing(limiter, "calls", timeout=0, cost=6) as client:
        client.get(service.url)
        with pytest.raises(RateLimited):
            client.get(service.url)
        counted = limiter.stats()["policies"]["calls"]
        assert (counted["allowed"], counted["denied"]) == (1, 1)


@pytest.mark.parametrize("shares", [False, True], ids=["a key of its own", "told all callers"])
def test_a_turn_that_is_older_than_a_refusal_is_given_back(redis_url: str, prefix: str, shares: bool) -> None:
    """The event loop comes to a turn only after another call has read a refusal."""
    sent: list[str] = []
    told = {"X-RateLimit-Global": "true"} if shares else {}
    options: Any = {"key": lambda request: request.url.path if shares else "one"}

    async def calls() -> None:
        begun, refused = asyncio.Event(), asyncio.Event()

        class BusyLoop:
            def __init__(self, limiter: AsyncLimiter) -> None:
                self._limiter = limiter

            def __getattr__(self, name: str) -> Any:
                return getattr(self._limiter, name)

            async def _turn(self, *arguments: Any) -> Any:
                admission = await self._limiter._turn(*arguments)
                if sent and not refused.is_set():
                    begun.set()
                    await refused.wait()
                return admission

        async def service(request: httpx.Request) -> httpx.Response:
            sent.append(request.url.path)
            await begun.wait()
            return httpx.Response(429, headers={"Retry-After": "60", **told})

        async with AsyncLimiter(redis_url, prefix=prefix, timeout=20.0) as limiter:
            trace_calls(limiter, BusyLoop)
            transport = AsyncPacedTransport(limiter, SLOW, timeout=5, transport=httpx.MockTransport(service), **options)
            async with httpx.AsyncClient(transport=transport) as client:
                first = asyncio.ensure_future(client.get("http://service/first"))
                while not sent:
                    await asyncio.sleep(0.001)
                second = asyncio.ensure_future(client.get("http://service/second"))
                assert (await first).status_code == 429
                refused.set()
                with pytest.raises(RateLimited):
                    await second

    asyncio.run(calls())
    assert sent == ["/first"]
    with Limiter(redis_url, prefix=prefix, timeout=20.0) as limiter:
        key = "/second" if shares else "one"
        limiter.unblock(paced_policy(limiter, SLOW), f"out:{key}")
        assert used(limiter, SLOW, key) == [0 if shares else 1]


def test_what_a_turn_takes_itself_is_no_refusal() -> None:
    """After a wait that was ended by hand, the next call goes alone until its answer arrives."""
    codes = iter([429, 200, 200])

    def service(_: httpx.Request) -> httpx.Response:
        code = next(codes)
        return httpx.Response(code, headers={"Retry-After": "60"} if code == 429 else {})

    with Limiter() as limiter:
        transport = PacedTransport(limiter, None, timeout=2, transport=httpx.MockTransport(service))
        with httpx.Client(transport=transport) as client:
            assert client.get("http://service/").status_code == 429
            limiter.unblock(Policy.learned(), "out:http://service")
            assert [client.get("http://service/").status_code for _ in range(2)] == [200, 200]
