"""A service with limits: its books, its dialect, and its counts."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections import Counter
from email.utils import formatdate
from typing import Any, AsyncIterator
from typing import Counter as Counted

from .books import Book, admit, book_of
from .dialects import DIALECTS, Answer
from .http import Request, head_of, read_request, write_response, write_stream

# Only this many requests are remembered one by one.
_REMEMBERED = 20_000


class Service:
    """A service from this JSON: `{"limits": [{"book": "fixed-window", "limit": 10, "window": 1}], "dialect": "ietf"}`.

    It listens on its own port. Paths that begin with `/-/` are not limited:

    - GET `/-/counts`: `admitted` and `refused` requests, `most` at once, `running` now, and `busy`, their seconds.
      A row of `seconds` has the number of a second, its admitted and refused requests, and the units of the last book.
    - GET `/-/requests`: each request with its time, method, target, status and the length of its body
    - PUT `/-/limits`: a list of numbers, one for each book, which are its limits from now on

    `/redirect`, `/stream` and `/say` answer as their query asks, `/drop` closes the connection, the rest is an echo.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        now = time.time()
        # The windows begin at whole seconds of the clock, as those of many services do.
        self._books: list[Book] = [book_of(one, float(int(now))) for one in described.get("limits", [])]
        self._dialect = DIALECTS[described.get("dialect", "ietf")]
        self._admitted: Counted[int] = Counter()
        self._refused: Counted[int] = Counter()
        self._units: Counted[int] = Counter()
        self._began, self._running, self._most, self._busy = float(int(now)), 0, 0, 0.0
        self._requests: list[dict[str, Any]] = []
        self._said: Counted[str] = Counter()

    async def listen(self) -> str:
        """Starts to listen. Returns the URL."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_request(reader)
                if request is None or not await self._answer(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answers a request. Returns False if the connection ends."""
        if request.path.startswith("/-/"):
            await write_response(writer, request, 200, {}, self._administer(request))
            return True
        now = time.time()
        costs = [_cost(book.unit, request) for book in self._books]
        verdicts = admit(self._books, costs, now)
        admitted = all(one.admitted for one in verdicts)
        counted = self._admitted if admitted else self._refused
        counted[int(now - self._began)] += 1
        self._units[int(now - self._began)] += costs[-1] if admitted and costs else 0
        said: Answer = self._dialect(verdicts, admitted, now) if verdicts else (200, {}, None)
        status, fields, body = said
        fields = {"Date": formatdate(now, usegmt=True), **fields}
        noted = {"at": now, "method": request.method, "target": request.target, "status": status}
        if len(self._requests) < _REMEMBERED:
            self._requests.append({**noted, "status": 200 if admitted else status, "body": len(request.body)})
        if not admitted:
            await write_response(writer, request, status, fields, body)
            return True
        self._running += 1
        self._most = max(self._most, self._running)
        try:
            return await self._page(request, writer, fields)
        finally:
            self._running -= 1
            self._busy += time.time() - now
            for book, cost in zip(self._books, costs):
                book.end(cost)

    def _administer(self, request: Request) -> Any:
        if request.path == "/-/limits":
            for book, limit in zip(self._books, json.loads(request.body)):
                book.change(time.time(), limit)
        if request.path == "/-/requests":
            return self._requests
        seconds = sorted({*self._admitted, *self._refused})
        return {
            "admitted": sum(self._admitted.values()),
            "refused": sum(self._refused.values()),
            "seconds": [[one, self._admitted[one], self._refused[one], self._units[one]] for one in seconds],
            "busy": self._busy,
            "most": self._most,
            "running": self._running,
        }

    async def _page(self, request: Request, writer: asyncio.StreamWriter, fields: dict[str, str]) -> bool:
        await asyncio.sleep(float(request.asked("wait", "0")))
        if request.path == "/drop":
            return False
        if request.path == "/redirect":
            fields["Location"] = request.asked("to")
            await write_response(writer, request, int(request.asked("status", "302")), fields, b"")
            return True
        if request.path == "/stream":
            await write_stream(writer, request, 200, {**fields, "Content-Type": "text/plain"}, _chunks(request))
            return True
        if request.path == "/say":
            return await self._say(request, writer, fields)
        echo = {
            "method": request.method,
            "target": request.target,
            "headers": request.headers,
            "body": request.body.decode("latin-1"),
        }
        await write_response(writer, request, 200, fields, echo)
        return True

    async def _say(self, request: Request, writer: asyncio.StreamWriter, fields: dict[str, str]) -> bool:
        """Answers as the query asks: `status` for the first `times` requests with this target, `field`s, and a `body`.
        The body may be `gzip`, `chunked` or `cut` in the middle, or come in parts over `late` seconds."""
        self._said[request.target] += 1
        status = int(request.asked("status", "200"))
        if self._said[request.target] > int(request.asked("times", "1000000")):
            await write_response(writer, request, 200, fields, {"after": self._said[request.target]})
            return True
        fields.update(tuple(value.split(":", 1)) for name, value in request.query if name == "field")  # type: ignore[misc]
        body = request.asked("body").encode() * int(request.asked("repeat", "1"))
        if request.asked("gzip"):
            body, fields["Content-Encoding"] = gzip.compress(body), "gzip"
        if request.asked("cut"):
            writer.write(head_of(status, {**fields, "Content-Length": str(len(body))}) + body[: len(body) // 2])
            return False
        if request.asked("late"):
            await write_stream(writer, request, status, fields, _late(body, float(request.asked("late"))))
        elif request.asked("chunked"):
            await write_stream(writer, request, status, fields, _parts(body))
        else:
            await write_response(writer, request, status, fields, body)
        return True


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 5_000):
        yield body[start : start + 5_000]


async def _late(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    for number in range(20):
        await asyncio.sleep(seconds / 20)
        yield body[number * len(body) // 20 : (number + 1) * len(body) // 20]


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    for number in range(int(request.asked("chunks", "3"))):
        yield b"chunk %d\n" % number
        await asyncio.sleep(float(request.asked("gap", "0")))


def _cost(unit: str, request: Request) -> int:
    """Returns 1, or the tokens that the JSON body of the request names."""
    if unit == "requests":
        return 1
    try:
        said = json.loads(request.body)
        return int(said.get(unit, said.get("max_tokens", 1)))
    except (ValueError, AttributeError):
        return 1
