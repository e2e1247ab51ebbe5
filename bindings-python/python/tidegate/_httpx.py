"""The shared part of the transports for httpx and httpx2. Both packages have the same interface."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from ._outgoing import Pacing, PassingBody, run_now
from ._paced_options import OPTIONS, PacedOptions, PolicyOption
from ._read_ahead import AsyncReadAhead, ReadAhead
from .web.options import check_names

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self, Unpack

    from ._tidegate import AsyncLimiter, Limiter


class TransportOptions(PacedOptions, total=False):
    """The options of a transport: those of outgoing calls, and those of an HTTPTransport."""

    # The transport that sends the requests. Default: an HTTPTransport or AsyncHTTPTransport with the options below.
    transport: Any
    verify: ssl.SSLContext | str | bool
    cert: Any
    trust_env: bool
    http1: bool
    http2: bool
    limits: Any
    proxy: Any
    uds: str | None
    local_address: str | None
    socket_options: Iterable[Any] | None


_KNOWN = tuple(TransportOptions.__annotations__)


class _Paced:
    """The common part of both transports."""

    # The package, httpx or httpx2, and the name of its transport that sends the requests.
    _httpx: ClassVar[Any]
    _sender: ClassVar[str]
    _blocking: ClassVar[bool]

    def __init__(
        self, limiter: Limiter | AsyncLimiter, policy: PolicyOption, **options: Unpack[TransportOptions]
    ) -> None:
        name = type(self).__name__
        check_names(options, _KNOWN, name)
        given: dict[str, Any] = dict(options)
        paced = {one: given.pop(one) for one in OPTIONS if one in given}
        transport = given.pop("transport", None)
        if transport is not None and given:
            raise TypeError(f"{name} got a transport, and {', '.join(given)} as well: give these to the transport")
        self._pacing = Pacing(type(self), limiter, policy, paced, blocking=self._blocking)
        self._transport = getattr(self._httpx, self._sender)(**given) if transport is None else transport


class BlockingTransport(_Paced):
    """A transport for clients that block."""

    _sender = "HTTPTransport"
    _blocking = True

    def handle_request(self, request: Any) -> Any:
        """Sends a request when its turn has come."""
        return run_now(self._pacing.send(_BlockingExchange(self._httpx, self._transport, request)))

    def close(self) -> None:
        """Closes the transport that sends the requests."""
        self._transport.close()

    def __enter__(self) -> Self:
        self._transport.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._transport.__exit__(kind, error, trace)


class AsyncTransport(_Paced):
    """A transport for clients of event loops."""

    _sender = "AsyncHTTPTransport"
    _blocking = False

    # True until the first request of the process.
    _is_cold = True

    async def handle_async_request(self, request: Any) -> Any:
        """Sends a request when its turn has come."""
        if AsyncTransport._is_cold:
            AsyncTransport._is_cold = False
            # httpx loads its network code with the first request. Loaded here, it does not use up that request's turn.
            with contextlib.suppress(ImportError):
                await import_module("anyio").sleep(0)
        return await self._pacing.send(_AsyncExchange(self._httpx, self._transport, request))

    async def aclose(self) -> None:
        """Closes the transport that sends the requests."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)


class _Exchange:
    """A request of either transport."""

    encoded = True

    def __init__(self, httpx: Any, transport: Any, request: Any) -> None:
        self._httpx, self._transport, self.request = httpx, transport, request

    def never_arrived(self, error: BaseException) -> bool:
        known = self._httpx
        connecting = (known.ConnectError, known.ConnectTimeout, known.ProxyError)
        return isinstance(error, (*connecting, known.PoolTimeout, known.UnsupportedProtocol))

    def can_repeat(self) -> bool:
        return isinstance(self.request.stream, self._httpx.ByteStream)

    def head(self, response: Any) -> tuple[int, Mapping[str, str]]:
        return response.status_code, response.headers

    def fields(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        fields: Iterable[tuple[bytes, bytes]] = response.headers.raw
        return fields

    def settled(self, response: Any) -> Any:
        response.request = self.request
        return response

    async def made(self, status: int, fields: dict[str, str], body: bytes) -> Any:
        return self._httpx.Response(status, headers=fields, content=body, request=self.request)

    async def _passed(self, response: Any, passing: PassingBody) -> bool:
        """True if the body is in memory. Such a response is closed already, so its body is fed and ended here."""
        if response.is_closed:
            for chunk in response.stream if isinstance(response.stream, self._httpx.ByteStream) else ():
                passing.feed(chunk)
            await passing.end()
        return bool(response.is_closed)


class _BlockingExchange(_Exchange):
    async def send(self) -> Any:
        return self._transport.handle_request(self.request)

    async def read(self, response: Any) -> bytes | None:
        ahead = ReadAhead(response.stream, response.stream.close, functools.partial(_shut_down, response))
        response.stream = _streams(self._httpx)[0](ahead, ahead)
        return ahead.all()

    async def watch(self, response: Any, passing: PassingBody) -> Any:
        if not await self._passed(response, passing):
            response.stream = _streams(self._httpx)[0](response.stream, response.stream, passing)
        return response

    async def close(self, response: Any) -> None:
        response.close()


class _AsyncExchange(_Exchange):
    async def send(self) -> Any:
        return await self._transport.handle_async_request(self.request)

    async def read(self, response: Any) -> bytes | None:
        ahead = AsyncReadAhead(aiter(response.stream), response.stream.aclose)
        response.stream = _streams(self._httpx)[1](ahead, ahead)
        return await ahead.all()

    async def watch(self, response: Any, passing: PassingBody) -> Any:
        if not await self._passed(response, passing):
            response.stream = _streams(self._httpx)[1](response.stream, response.stream, passing)
        return response

    async def close(self, response: Any) -> None:
        await response.aclose()


class _Stream:
    """A body that was read in part before, or that is watched while the caller reads it."""

    def __init__(self, stream: Any, chunks: Iterable[bytes], passing: PassingBody | None = None) -> None:
        self._stream, self._chunks, self._passing = stream, chunks, passing

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if self._passing is not None:
                self._passing.feed(chunk)
            yield chunk

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            if self._passing is not None:
                self._passing.ended()


class _AsyncStream:
    """The same for clients of event loops."""

    def __init__(self, stream: Any, chunks: AsyncIterable[bytes], passing: PassingBody | None = None) -> None:
        self._stream, self._chunks, self._passing = stream, chunks, passing

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            if self._passing is not None:
                self._passing.feed(chunk)
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            if self._passing is not None:
                await self._passing.end()


@functools.cache
def _streams(httpx: Any) -> tuple[Any, Any]:
    """Returns both classes as streams of the package, because it tests the class of a body."""
    return (
        type("PacedStream", (_Stream, httpx.SyncByteStream), {}),
        type("AsyncPacedStream", (_AsyncStream, httpx.AsyncByteStream), {}),
    )


def _shut_down(response: Any) -> None:
    """Ends a read in another thread. The calls of HTTP/2 share their connection, so there the read ends by itself."""
    stream = response.extensions.get("network_stream")
    if stream is not None and response.extensions.get("http_version") != b"HTTP/2":
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
