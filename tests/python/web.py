"""Requests to WSGI and ASGI applications, as a server makes them, and the responses that a client sees."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from http_sfv import List


@dataclass
class SeenResponse:
    """A response as a client sees it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    parts: list[bytes] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        values = [value for known, value in self.headers if known.lower() == name.lower()]
        assert len(values) == 1, f"{name} is there {len(values)} times: {self.headers}"
        return values[0]

    def __contains__(self, name: str) -> bool:
        return any(known.lower() == name.lower() for known, _ in self.headers)

    def items(self, name: str) -> dict[str, dict[str, Any]]:
        """Returns the items of a list field. An independent parser reads it."""
        parsed = List()
        parsed.parse(self[name].encode("ascii"))
        return {str(item.value): dict(item.params) for item in parsed}


def call_wsgi(
    app: Any, method: str = "GET", path: str = "/", headers: dict[str, str] | None = None, **more: Any
) -> SeenResponse:
    """Makes one request over WSGI."""
    import io

    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "203.0.113.9",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **more,
    }
    for name, value in (headers or {}).items():
        environ["HTTP_" + name.upper().replace("-", "_")] = value
    begun: list[Any] = []

    def start(status: str, fields: list[tuple[str, str]], error: Any = None) -> Any:
        begun[:] = [int(status.split()[0]), fields]
        return lambda _: None

    body = app(environ, start)
    try:
        parts = list(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    return SeenResponse(begun[0], begun[1], b"".join(parts), parts)


async def acall(
    app: Any, method: str = "GET", path: str = "/", headers: dict[str, str] | None = None, **more: Any
) -> SeenResponse:
    """Makes one request over ASGI."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"testserver")]
        + [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "client": ("203.0.113.9", 4711),
        "server": ("testserver", 80),
        "state": {},
        **more,
    }
    seen = SeenResponse(0, [], b"")
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        request = next(requests, None)
        if request is None:
            await asyncio.sleep(3600)
        return request

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert seen.status == 0, "a response starts once"
            seen.status = message["status"]
            seen.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            seen.parts.append(message.get("body", b""))
            seen.body += message.get("body", b"")

    await app(scope, receive, send)
    return seen


def call_asgi(app: Any, *args: Any, **kwargs: Any) -> SeenResponse:
    """Does the same from a test that is not async."""
    return asyncio.run(acall(app, *args, **kwargs))


# aiohttp.web binds an application to one loop, and Sanic starts one once. So all of them run on this loop.
_loop = asyncio.new_event_loop()
atexit.register(_loop.close)
_servers: dict[Any, Any] = {}


class Wire(asyncio.Transport):
    """The connection of a server, without a socket. It keeps the bytes that the server sends."""

    def __init__(self, **names: Any) -> None:
        super().__init__(names)
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(map(bytes, list_of_data)))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def call_aiohttp(app: Any, *args: Any, **kwargs: Any) -> SeenResponse:
    """Makes one request to an application of aiohttp.web, through the protocol of its server."""
    return _loop.run_until_complete(_acall_aiohttp(app, *args, **kwargs))


async def _acall_aiohttp(
    app: Any,
    method: str = "GET",
    path: str = "/",
    headers: dict[str, str] | None = None,
    client: Any = ("203.0.113.9", 4711),
    server: Any = ("testserver", 80),
) -> SeenResponse:
    from aiohttp import web
    from aiohttp.http_parser import HttpResponseParser

    if app not in _servers:
        errors: list[Exception] = []

        @web.middleware
        async def keep_error(request: web.Request, handler: Any) -> Any:
            try:
                return await handler(request)
            except web.HTTPException:
                raise
            except Exception as error:
                errors.append(error)
                raise

        app.middlewares.insert(0, keep_error)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        _servers[app] = runner.server, errors
    make_protocol, errors = _servers[app]
    protocol = make_protocol()
    wire = Wire(peername=client, sockname=server if server[1] else server[0])
    protocol.connection_made(wire)
    fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"{method} {path} HTTP/1.1\r\nHost: testserver\r\nConnection: close\r\n{fields}\r\n"
    protocol.data_received(head.encode("latin-1"))
    # It ends with the connection.
    await protocol._task_handler
    protocol.connection_lost(None)
    if errors:
        raise errors.pop()
    parser = HttpResponseParser(protocol, _loop, limit=2**16, response_with_body=method != "HEAD", read_until_eof=True)
    [(message, body)], *_ = parser.feed_data(wire.sent)
    if method != "HEAD":
        parser.feed_eof()
    fields_seen = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.raw_headers]
    return SeenResponse(message.code, fields_seen, await body.read())


def call_sanic(app: Any, *args: Any, **kwargs: Any) -> SeenResponse:
    """Makes one request to an application of Sanic over ASGI."""
    return _loop.run_until_complete(_acall_sanic(app, *args, **kwargs))


async def _acall_sanic(app: Any, *args: Any, **kwargs: Any) -> SeenResponse:
    from sanic.exceptions import SanicException

    if app not in _servers:
        _servers[app] = errors = []

        async def keep_error(request: Any, exception: Exception) -> None:
            if not isinstance(exception, SanicException):
                errors.append(exception)

        app.signal("http.lifecycle.exception")(keep_error)
        messages = iter([{"type": "lifespan.startup"}])

        async def receive() -> Any:
            # It ends the lifespan, and not the application.
            if (message := next(messages, None)) is None:
                raise EOFError
            return message

        async def send(message: Any) -> None:
            assert message == {"type": "lifespan.startup.complete"}, message

        with contextlib.suppress(EOFError):
            await app({"type": "lifespan", "state": {}}, receive, send)
    seen = await acall(app, *args, **kwargs)
    if _servers[app]:
        raise _servers[app].pop()
    return seen


async def websocket(app: Any, extensions: Any = None) -> list[Any]:
    """Opens a websocket. Returns the messages that its client receives."""
    seen: list[Any] = []
    scope = {
        "type": "websocket",
        "path": "/ws",
        "raw_path": b"/ws",
        "root_path": "",
        "scheme": "ws",
        "query_string": b"",
        "headers": [],
        "client": ("203.0.113.9", 4711),
        "server": ("testserver", 80),
        "subprotocols": [],
        "extensions": extensions or {},
        "state": {},
    }
    requests = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}])

    async def receive() -> Any:
        return next(requests)

    async def send(message: Any) -> None:
        seen.append(message)

    await app(scope, receive, send)
    return seen


def flask_app() -> Any:
    """Makes a Flask application that raises errors of its views, and takes further views after its first request."""
    import flask

    class Growing(flask.Flask):
        def _check_setup_finished(self, f_name: str) -> None:
            pass

    app = Growing("app")
    app.config["PROPAGATE_EXCEPTIONS"] = True
    return app


def plain_endpoint() -> Any:
    """Makes a new endpoint, because a limit belongs to the function that it decorates."""

    async def endpoint() -> str:
        return "plain"

    return endpoint


def get_over_unix(path: str, client: str) -> bytes:
    """Sends a request like a proxy on a Unix domain socket. Returns the first line of the response."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n")
        connection.sendall(b"X-Forwarded-For: " + client.encode() + b"\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b"")).split(b"\r\n", 1)[0]


def listens(path: str) -> bool:
    """True if a server accepts connections on a Unix domain socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(path) == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
