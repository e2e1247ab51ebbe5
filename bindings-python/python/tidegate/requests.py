"""Paced sessions of requests: `pip install tidegate[requests]`.

    from tidegate.requests import PacedAdapter

    session = requests.Session()
    session.mount("https://", PacedAdapter(limiter, policy="5000/hour; 80/minute"))

A request waits for its turn and is sent. The limits that its response announces count for all processes that share the
store of the limiter. docs/guides/outgoing.md explains it.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import responses
from typing import TYPE_CHECKING, Any

from requests import PreparedRequest, Response
from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, DEFAULT_RETRIES, HTTPAdapter
from requests.exceptions import ConnectionError, ConnectTimeout
from urllib3 import HTTPResponse, Retry
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError

from ._content_decoder import decoder
from ._outgoing import OutgoingRequest, OutgoingResponse, Pacing, PassingBody, run_now
from ._paced_options import PacedOptions, PolicyOption
from ._read_ahead import ReadAhead

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._tidegate import AsyncLimiter, Limiter

__all__ = ["PacedAdapter"]


class PacedAdapter(HTTPAdapter):
    """An adapter for `requests.Session.mount`.

    - `policy`: a name, a notation, a Policy, or a function of the request that returns one of these or None. With None,
      only the limits that responses announce count.
    - `key`: a text, or a function of the request. The default is its origin. `prefix` ("out:") stands before it. A
      redirect to another origin has that origin as its key.
    - `cost`: units, numbers by their names, or a function of the request. The default is 1.
    - `settle`: a function of the response, called before its body is read. It returns the actual cost, a
      `tidegate.outgoing.SettleReader` that reads the body while the caller does, or None. It does not see a body that
      you read from `response.raw`.
    - `timeout`: the longest time that a request waits for its turns, 30 seconds by default. None waits as long as it
      takes. Beyond it RateLimited is raised before anything is sent. It is not that of `session.get(…, timeout=…)`.
    - `retries`: how often a request is sent again after a 429 or 503 that announces a wait. This needs an idempotent
      method or an Idempotency-Key, and a body that is not a stream.
    - `learn`: True learns the limits that responses announce. `max_learned_wait`: the longest announced wait that is
      believed.
    - `margin`: how much the travel time to the service may differ between requests, 0.05 seconds by default.
    - `priority`: a class of the policy's `priorities`, or a function of the request.
    - `on_wait`: called before a request waits, with the Decision and the seconds.
    - `respond`: True turns a refusal into a response with 429 and `x-should-retry: false`.
    - `pool_connections`, `pool_maxsize`, `max_retries`, `pool_block`: those of an HTTPAdapter. Its own retries wait for
      no turn, so leave `max_retries` at 0.

    Functions get a request with `method`, `url`, `headers` and `content`. `original` is the request of requests. Each
    redirect is a separate call to its own origin.
    """

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        policy: PolicyOption,
        *,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        max_retries: int | Retry = DEFAULT_RETRIES,
        pool_block: bool = DEFAULT_POOLBLOCK,
        **options: Unpack[PacedOptions],
    ) -> None:
        self._pacing = Pacing(type(self), limiter, policy, options, blocking=True)
        super().__init__(pool_connections, pool_maxsize, max_retries, pool_block)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Sends a request when its turn has come."""
        send = functools.partial(super().send, request, *args, **kwargs)
        # Without retries of the adapter, its error is that of the only attempt.
        once = not self.max_retries.total
        return run_now(self._pacing.send(_Exchange(self, request, send, once)))

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a PacedAdapter cannot be pickled: it has a limiter. Mount one in each process")


class _Exchange:
    """A request of a session."""

    encoded = False

    def __init__(
        self, adapter: PacedAdapter, request: PreparedRequest, send: Callable[[], Response], once: bool
    ) -> None:
        self._adapter, self._original, self._send, self._once = adapter, request, send, once
        body = request.body
        content = b"" if body is None else body.encode() if isinstance(body, str) else body
        self.request = OutgoingRequest(
            request.method or "",
            request.url or "",
            request.headers,
            content if isinstance(content, bytes) else None,
            request,
        )

    async def send(self) -> Response:
        return self._send()

    def never_arrived(self, error: BaseException) -> bool:
        if not self._once or not isinstance(error, ConnectionError):
            return False
        reason = error.args[0].reason if error.args and isinstance(error.args[0], MaxRetryError) else None
        return isinstance(error, ConnectTimeout) or isinstance(reason, (NewConnectionError, ConnectTimeoutError))

    def can_repeat(self) -> bool:
        return self.request.content is not None

    def head(self, response: Response) -> tuple[int, Mapping[str, str]]:
        return response.status_code, response.headers

    def fields(self, response: Response) -> Iterable[tuple[str, str]]:
        return response.headers.items()

    async def read(self, response: Response) -> bytes | None:
        raw = response.raw
        ahead = ReadAhead(raw.stream(8_192, decode_content=False), raw.close, getattr(raw, "shutdown", None))
        body: Any = _File(b"", ahead, ahead.close)
        response.raw = HTTPResponse(
            body,
            raw.headers,
            raw.status,
            raw.version,
            reason=raw.reason,
            preload_content=False,
            decode_content=False,
            # The session reads cookies there.
            original_response=raw._original_response,
            request_method=self.request.method,
        )
        whole, decode = ahead.all(), decoder(response.headers)
        return None if whole is None or decode is None else decode.decode(whole)

    def settled(self, response: Response) -> Any:
        return OutgoingResponse(response.status_code, response.headers, self.request)

    async def watch(self, response: Response, passing: PassingBody) -> Response:
        watched = _PassingResponse()
        watched.__dict__.update(response.__dict__, _passing=passing)
        return watched

    async def close(self, response: Response) -> None:
        response.close()

    async def made(self, status: int, fields: dict[str, str], body: bytes) -> Response:
        file: Any = _File(body)
        raw = HTTPResponse(file, fields, status, reason=responses[status], preload_content=False)
        return self._adapter.build_response(self._original, raw)


class _PassingResponse(Response):
    """A response that settles its call when its body ends."""

    # A pickled copy has its whole body, and nothing to settle.
    _passing: PassingBody | None = None

    def iter_content(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        chunks = super().iter_content(*args, **kwargs)
        return chunks if self._passing is None else self._passed(chunks, self._passing)

    def _passed(self, chunks: Iterator[Any], passing: PassingBody) -> Iterator[Any]:
        try:
            for chunk in chunks:
                passing.feed(chunk if isinstance(chunk, bytes) else chunk.encode(self.encoding or "utf-8", "replace"))
                yield chunk
        except Exception:
            passing.ended()
            raise
        passing.ended()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._passing is not None:
                self._passing.ended()


class _File:
    """A body that was read in part before. It is closed at its end, because urllib3 waits for that."""

    def __init__(self, kept: bytes, rest: Iterable[bytes] = (), close: Callable[[], object] = bool) -> None:
        self._kept, self._rest, self._close = io.BytesIO(kept), iter(rest), close
        self.closed = False

    def read(self, most: int | None = None) -> bytes:
        data = self._kept.read(most)
        if most is None:
            data += b"".join(self._rest)
        elif not data:
            self._kept = io.BytesIO(next(self._rest, b""))
            data = self._kept.read(most)
        if not data and most != 0:
            self.close()
        return data

    def close(self) -> None:
        self.closed = True
        self._close()
