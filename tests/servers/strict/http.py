"""As much of HTTP/1.1 as a strict server needs: it reads the requests of a connection, and writes their responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

REASONS = {200: "OK", 201: "Created", 302: "Found", 403: "Forbidden", 429: "Too Many Requests", 503: "Unavailable"}


class Request(NamedTuple):
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    def asked(self, name: str, default: str = "") -> str:
        """Returns a parameter of the query."""
        return dict(self.query).get(name, default)

    def field(self, name: str) -> str | None:
        return {known.lower(): value for known, value in self.headers}.get(name.lower())


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Reads the next request of a connection. Returns None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head[:-4].split("\r\n")
    method, target, _ = first.split(" ")
    pairs = [line.split(":", 1) for line in lines]
    request = Request(method, target, [(name, value.strip()) for name, value in pairs], b"")
    if (request.field("transfer-encoding") or "").lower() == "chunked":
        body = b""
        while True:
            length = int((await reader.readline()).strip(), 16)
            body += await reader.readexactly(length)
            await reader.readexactly(2)
            if length == 0:
                return request._replace(body=body)
    return request._replace(body=await reader.readexactly(int(request.field("content-length") or 0)))


def head_of(status: int, fields: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}", *(f"{name}: {fields[name]}" for name in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def write_response(
    writer: asyncio.StreamWriter, request: Request, status: int, fields: dict[str, str], body: Any
) -> None:
    """Writes a response. A body that is not bytes is written as JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields = {"Content-Type": "application/json", **fields}
    head = head_of(status, {**fields, "Content-Length": str(len(body))})
    writer.write(head if request.method == "HEAD" else head + body)
    await writer.drain()


async def write_stream(
    writer: asyncio.StreamWriter, request: Request, status: int, fields: dict[str, str], chunks: Any
) -> None:
    """Writes a response with a body in chunks, from an async iterator."""
    writer.write(head_of(status, {**fields, "Transfer-Encoding": "chunked"}))
    if request.method == "HEAD":
        return
    async for chunk in chunks:
        writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
