"""Real HTTP clients behind one interface, so that one test of outgoing calls runs with each of them."""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import aiohttp
import requests

from tidegate import Limiter, Policy
from tidegate.aiohttp import paced
from tidegate.requests import PacedAdapter

T = TypeVar("T")
# Shared, because a transport would make a new one each time, which takes longer than most tests.
TLS = ssl.create_default_context()


@dataclass(frozen=True)
class Answer:
    """A response that was read to its end. Names of header fields are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Stream:
    """A response with a body that is read chunk by chunk."""

    def __init__(self, status: int, chunks: Callable[[], bytes], close: Callable[[], object]) -> None:
        self.status, self.next, self.close = status, chunks, close


class Client:
    """A client with paced calls. One that needs an event loop has its own."""

    name: ClassVar[str]
    is_async: ClassVar[bool]
    # The errors for a server that is not there, for a connection that closes, and for one that closes within a body.
    connect_error: Any
    read_error: Any
    broken_error: Any

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Any = None,
        follow: bool = False,
    ) -> Answer:
        raise NotImplementedError

    def get(self, url: str, **options: Any) -> Answer:
        return self.call("GET", url, **options)

    def stream(self, url: str) -> Stream:
        raise NotImplementedError

    def gather(self, urls: Iterable[str]) -> list[Any]:
        """Gets all of them at the same time. Returns answers and errors."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class BlockingClient(Client):
    is_async = False

    def gather(self, urls: Iterable[str]) -> list[Any]:
        def one(url: str) -> Any:
            try:
                return self.get(url)
            except Exception as error:
                return error

        urls = list(urls)
        with ThreadPoolExecutor(len(urls)) as pool:
            return list(pool.map(one, urls))


class LoopClient(Client):
    is_async = True

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.loop.run_until_complete(awaited())

    async def acall(self, method: str, url: str, **options: Any) -> Answer:
        raise NotImplementedError

    def call(self, method: str, url: str, **options: Any) -> Answer:
        return self.run(self.acall(method, url, **options))

    def gather(self, urls: Iterable[str]) -> list[Any]:
        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(self.acall("GET", url) for url in urls), return_exceptions=True)

        return self.run(all_of_them())


def _answer(response: Any) -> Answer:
    fields = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, fields, response.content, str(response.url))


class Httpx(BlockingClient):
    name = "httpx"
    package = "httpx"

    def __init__(self, limiter: Any, policy: Any, **options: Any) -> None:
        package = importlib.import_module(self.package)
        transport = importlib.import_module(f"tidegate.{self.package}").PacedTransport(
            limiter, policy, verify=TLS, **options
        )
        self.connect_error = package.ConnectError
        self.read_error = self.broken_error = package.RemoteProtocolError
        self.client = package.Client(transport=transport, timeout=30)

    def call(self, method: str, url: str, **options: Any) -> Answer:
        follow = options.pop("follow", False)
        return _answer(self.client.request(method, url, follow_redirects=follow, **options))

    def stream(self, url: str) -> Stream:
        response = self.client.send(self.client.build_request("GET", url), stream=True)
        chunks = response.iter_bytes()
        return Stream(response.status_code, lambda: next(chunks, b""), response.close)

    def close(self) -> None:
        self.client.close()


class Httpx2(Httpx):
    name = "httpx2"
    package = "httpx2"


class AsyncHttpx(LoopClient):
    name = "httpx-async"
    package = "httpx"

    def __init__(self, limiter: Any, policy: Any, **options: Any) -> None:
        package = importlib.import_module(self.package)
        module = importlib.import_module(f"tidegate.{self.package}")
        transport = module.AsyncPacedTransport(limiter, policy, verify=TLS, **options)
        super().__init__()
        self.connect_error = package.ConnectError
        self.read_error = self.broken_error = package.RemoteProtocolError
        self.client = package.AsyncClient(transport=transport, timeout=30)

    async def acall(self, method: str, url: str, **options: Any) -> Answer:
        follow, content = options.pop("follow", False), options.pop("content", None)
        if isinstance(content, Iterator):
            content = _as_async(content)
        response = await self.client.request(method, url, follow_redirects=follow, content=content, **options)
        return _answer(response)

    def stream(self, url: str) -> Stream:
        response = self.run(self.client.send(self.client.build_request("GET", url), stream=True))
        chunks = response.aiter_bytes()
        return Stream(response.status_code, lambda: self.run(anext(chunks, b"")), lambda: self.run(response.aclose()))

    def close(self) -> None:
        self.run(self.client.aclose())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class AsyncHttpx2(AsyncHttpx):
    name = "httpx2-async"
    package = "httpx2"


async def _as_async(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Requests(BlockingClient):
    name = "requests"
    connect_error = read_error = requests.ConnectionError
    broken_error = requests.exceptions.ChunkedEncodingError

    def __init__(self, limiter: Any, policy: Any, **options: Any) -> None:
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", PacedAdapter(limiter, policy, pool_maxsize=64, **options))

    def call(self, method: str, url: str, **options: Any) -> Answer:
        follow, content = options.pop("follow", False), options.pop("content", None)
        return _answer(self.session.request(method, url, allow_redirects=follow, data=content, **options))

    def stream(self, url: str) -> Stream:
        response = self.session.get(url, stream=True, allow_redirects=False)
        chunks = response.iter_content(None)
        return Stream(response.status_code, lambda: next(chunks, b""), response.close)

    def close(self) -> None:
        self.session.close()


class Aiohttp(LoopClient):
    name = "aiohttp"
    connect_error = aiohttp.ClientConnectorError
    read_error = aiohttp.ServerDisconnectedError
    broken_error = aiohttp.ClientPayloadError

    def __init__(self, limiter: Any, policy: Any, **options: Any) -> None:
        middleware = paced(limiter, policy, **options)
        super().__init__()

        async def session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(middlewares=[middleware])

        self.session = self.run(session())

    async def acall(self, method: str, url: str, **options: Any) -> Answer:
        follow, content = options.pop("follow", False), options.pop("content", None)
        if isinstance(content, Iterator):
            content = _as_async(content)
        async with self.session.request(method, url, allow_redirects=follow, data=content, **options) as response:
            fields = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, fields, await response.read(), str(response.url))

    def stream(self, url: str) -> Stream:
        async def begun() -> aiohttp.ClientResponse:
            return await self.session.get(url, allow_redirects=False)

        response = self.run(begun())

        async def closed() -> None:
            response.close()
            # Lets the loop run the callbacks that the close has started.
            for _ in range(5):
                await asyncio.sleep(0)

        return Stream(response.status, lambda: self.run(response.content.readany()), lambda: self.run(closed()))

    def close(self) -> None:
        self.run(self.session.close())
        self.loop.close()


CLIENTS: list[Any] = [Httpx, AsyncHttpx, Requests, Aiohttp]
# httpx2 needs Python 3.11.
if importlib.util.find_spec("httpx2"):
    CLIENTS += [Httpx2, AsyncHttpx2]


def until(client: Client, holds: Any) -> None:
    """Waits until a condition holds. If the client has a loop, it runs that meanwhile, as calls end there later."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        if isinstance(client, LoopClient):
            client.run(asyncio.sleep(0.001))
        else:
            time.sleep(0.001)


def paced_policy(limiter: Limiter, policy: str | Policy) -> Policy:
    """Returns the policy that clients use, which is paced."""
    return limiter.policy(policy).paced()


def used(limiter: Limiter, policy: str | Policy, key: str, cost: Any = 1) -> list[int]:
    """Returns the units of each limit of a policy that clients have used."""
    states = limiter.peek(paced_policy(limiter, policy), f"out:{key}", cost).limits
    return [state.limit - state.remaining for state in states]
