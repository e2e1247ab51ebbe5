"""Paced sessions of aiohttp: `pip install tidegate[aiohttp]`.

    from tidegate.aiohttp import paced

    session = aiohttp.ClientSession(middlewares=[paced(limiter, policy="5000/hour; 80/minute")])

A request waits for its turn and is sent. The limits that its response announces count for all processes that share the
store of the limiter. docs/guides/outgoing.md explains it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from http.client import responses
from typing import TYPE_CHECKING, Any

from aiohttp import (
    ClientConnectorError,
    ClientHandlerType,
    ClientMiddlewareType,
    ClientRequest,
    ClientResponse,
    ConnectionTimeoutError,
    HttpVersion11,
    StreamReader,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import TimerNoop
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.payload import BytesPayload
from multidict import CIMultiDict, CIMultiDictProxy

from ._outgoing import OutgoingRequest, OutgoingResponse, Pacing, PassingBody
from ._paced_options import PacedOptions, PolicyOption
from ._read_ahead import BODY_SECONDS, MOST_BODY

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._tidegate import AsyncLimiter, Limiter

__all__ = ["paced"]


def paced(
    limiter: Limiter | AsyncLimiter, policy: PolicyOption, **options: Unpack[PacedOptions]
) -> ClientMiddlewareType:
    """A middleware for `aiohttp.ClientSession` or one of its requests.

    - `policy`: a name, a notation, a Policy, or a function of the request that returns one of these or None. With None,
      only the limits that responses announce count.
    - `key`: a text, or a function of the request. The default is its origin. `prefix` ("out:") stands before it. A
      redirect to another origin has that origin as its key.
    - `cost`: units, numbers by their names, or a function of the request. The default is 1.
    - `settle`: a function of the response, called before its body is read. It returns the actual cost, a
      `tidegate.outgoing.SettleReader` that reads the body while the caller does, or None.
    - `timeout`: the longest time that a request waits for its turns, 30 seconds by default. None waits as long as it
      takes. Beyond it RateLimited is raised before anything is sent. The total timeout of aiohttp includes the wait.
    - `retries`: how often a request is sent again after a 429 or 503 that announces a wait. This needs an idempotent
      method or an Idempotency-Key, and a body that is not a stream.
    - `learn`: True learns the limits that responses announce. `max_learned_wait`: the longest announced wait that is
      believed.
    - `margin`: how much the travel time to the service may differ between requests, 0.05 seconds by default.
    - `priority`: a class of the policy's `priorities`, or a function of the request.
    - `on_wait`: called before a request waits, with the Decision and the seconds.
    - `respond`: True turns a refusal into a response with 429 and `x-should-retry: false`.

    Functions get a request with `method`, `url`, `headers` and `content`. `original` is the request of aiohttp. A
    request that is cancelled while it waits gives its turn back. Each redirect is a separate call to its own origin.
    """
    pacing = Pacing(paced, limiter, policy, options, blocking=False)

    async def middleware(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        body, content = request.body, None
        if isinstance(body, BytesPayload):
            # Latin-1 has a character for each byte. Before aiohttp 3.12.7 there is no other way to the bytes.
            content = body.decode("latin-1").encode("latin-1")
        elif not body:
            content = b""
        outgoing = OutgoingRequest(request.method, str(request.url), request.headers, content, request)
        return await pacing.send(_Exchange(outgoing, handler))

    return middleware


class _Exchange:
    """A request of a session."""

    encoded = False

    def __init__(self, request: OutgoingRequest, handler: ClientHandlerType) -> None:
        self.request, self._handler = request, handler

    async def send(self) -> ClientResponse:
        return await self._handler(self.request.original)

    def never_arrived(self, error: BaseException) -> bool:
        return isinstance(error, (ClientConnectorError, ConnectionTimeoutError))

    def can_repeat(self) -> bool:
        return self.request.content is not None

    def head(self, response: ClientResponse) -> tuple[int, Mapping[str, str]]:
        return response.status, response.headers

    def fields(self, response: ClientResponse) -> Iterable[tuple[str, str]]:
        return response.headers.items()

    async def read(self, response: ClientResponse) -> bytes | None:
        response.content = body = _Body(response.content)
        try:
            return await asyncio.wait_for(body.all(), BODY_SECONDS)
        except asyncio.TimeoutError:
            return None

    def settled(self, response: ClientResponse) -> Any:
        return OutgoingResponse(response.status, response.headers, self.request)

    async def watch(self, response: ClientResponse, passing: PassingBody) -> ClientResponse:
        connection, body = response.connection, None
        # An upgraded connection has no body.
        if not passing.holds_only and response.status != 101:
            response.content = body = _Body(response.content, passing)
        if connection is None:
            # The whole body is here already.
            if body is not None:
                body.take_rest()
            await passing.end()
        else:
            connection.add_callback(lambda: _over(body, passing))
        return response

    async def close(self, response: ClientResponse) -> None:
        response.close()

    async def made(self, status: int, fields: dict[str, str], body: bytes) -> ClientResponse:
        request = self.request.original
        loop = asyncio.get_running_loop()
        named = {
            "writer": None,
            "continue100": None,
            "timer": TimerNoop(),
            "request_info": request.request_info,
            "traces": [],
            "loop": loop,
            "session": None,
            # It knows the number of sent bytes. Before aiohttp 3.14 there is no such parameter.
            "stream_writer": _NothingSent,
        }
        kind = request.response_class
        known = inspect.signature(kind).parameters
        response: ClientResponse = kind(
            request.method, request.original_url, **{name: value for name, value in named.items() if name in known}
        )
        return await response.start(_NoConnection(loop, status, fields, body))  # type: ignore[arg-type]


class _NothingSent:
    output_size = 0


class _NoConnection:
    """A connection that has sent nothing, with a response that has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, status: int, fields: dict[str, str], body: bytes) -> None:
        self.protocol = ResponseHandler(loop)
        content = StreamReader(self.protocol, 1 << 16, loop=loop)
        content.feed_data(body)
        content.feed_eof()
        headers = CIMultiDictProxy(CIMultiDict(fields))
        raw = tuple((name.encode(), value.encode()) for name, value in fields.items())
        reason = responses[status]
        message = RawResponseMessage(HttpVersion11, status, reason, headers, raw, False, None, False, False)
        self.protocol.feed_data((message, content), 0)

    def release(self) -> None:
        """Does nothing, because there is no connection."""

    close = release


def _over(body: _Body | None, passing: PassingBody) -> None:
    """Called when a connection is given back. Its response has ended, or was closed before."""
    if body is not None:
        body.take_rest()
    passing.ended()


class _Body(StreamReader):
    """A reader in front of another one, for a body that was read in part before or that is watched."""

    def __init__(self, inner: StreamReader, passing: PassingBody | None = None) -> None:
        self._inner, self._passing = inner, passing
        self._kept = b""

    def __getattr__(self, name: str) -> Any:
        # All other attributes are those of the reader behind this one.
        return getattr(self.__dict__["_inner"], name)

    async def all(self) -> bytes | None:
        """Returns the whole body if it has at most MOST_BODY bytes. The caller can still read it."""
        while len(self._kept) <= MOST_BODY:
            try:
                chunk = await self._inner.readany()
            except Exception:
                # The reader raises it again, for the caller.
                break
            if not chunk:
                return self._kept
            self._kept += chunk
        return None

    def take_rest(self) -> None:
        """Takes the bytes that have arrived, if no more will come."""
        if self._inner.is_eof() and self._inner.exception() is None:
            self._kept += self._seen(self._inner.read_nowait())

    def _seen(self, chunk: bytes) -> bytes:
        if self._passing is not None:
            self._passing.feed(chunk)
        return chunk

    async def _more(self) -> bytes:
        """Returns the next bytes, or none at the end."""
        if not self._kept and (chunk := await self._inner.readany()):
            return self._seen(chunk)
        # The end may have come while this waited.
        chunk, self._kept = self._kept, b""
        if not chunk and self._passing is not None:
            await self._passing.end()
        return chunk

    async def readany(self) -> bytes:
        return await self._more()

    async def read(self, n: int = -1) -> bytes:
        if n < 0:
            return b"".join([chunk async for chunk in self.iter_any()])
        chunk = await self._more() if n else b""
        self._kept = chunk[n:] + self._kept
        return chunk[:n]

    async def readexactly(self, n: int) -> bytes:
        found = b""
        while len(found) < n:
            chunk = await self.read(n - len(found))
            if not chunk:
                raise asyncio.IncompleteReadError(found, n)
            found += chunk
        return found

    async def readuntil(self, separator: bytes = b"\n", *, max_size: int | None = None) -> bytes:
        if not separator:
            raise ValueError("Separator should be at least one-byte string")
        found = b""
        while (at := found.find(separator)) < 0:
            chunk = await self._more()
            if not chunk:
                return found
            found += chunk
            most = max_size or self._inner.get_read_buffer_limits()[1]
            if len(found) > most and separator not in found[: most + 1]:
                raise LineTooLong(found[:100] + b"...", most)
        end = at + len(separator)
        self._kept = found[end:] + self._kept
        return found[:end]

    async def readline(self, *, max_line_length: int | None = None) -> bytes:
        return await self.readuntil(max_size=max_line_length)

    async def readchunk(self) -> tuple[bytes, bool]:
        if self._kept:
            return await self._more(), False
        chunk, ends = await self._inner.readchunk()
        return (self._seen(chunk), ends) if chunk or ends else (await self._more(), False)

    def read_nowait(self, n: int = -1) -> bytes:
        if not self._kept:
            return self._seen(self._inner.read_nowait(n))
        end = len(self._kept) if n < 0 else n
        chunk, self._kept = self._kept[:end], self._kept[end:]
        return chunk

    def unread_data(self, data: bytes) -> None:
        self._kept = data + self._kept

    def at_eof(self) -> bool:
        return not self._kept and self._inner.at_eof()

    def is_eof(self) -> bool:
        return self._inner.is_eof()

    async def wait_eof(self) -> None:
        await self._inner.wait_eof()

    def on_eof(self, callback: Callable[[], None]) -> None:
        self._inner.on_eof(callback)

    def exception(self) -> BaseException | None:
        return self._inner.exception()

    def set_exception(self, *error: Any) -> None:
        self._inner.set_exception(*error)
