"""Requests from clients without an address: on a connection that was reset, and on a Unix domain socket."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import Depends, FastAPI, WebSocket

from tidegate import KeyInvalid
from tidegate.asgi import TidegateMiddleware, client_ip
from tidegate.web import keys
from web import call_asgi, get_over_unix, wait_until

LIMIT = 5
RESETS = 100
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
GET = b"GET / HTTP/1.1\r\nHost: test\r\n"


class SeenRequests:
    """The requests that reach the server, and those that pass the limit."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.admitted: list[str] = []
        self.sent: list[str] = []


def raw_asgi(seen: SeenRequests) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.admitted.append(scope["type"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 1000})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    key = client_ip(trusted_proxies=["unix"])
    return TidegateMiddleware(app, f"{LIMIT}/hour", key=key)


def starlette_with(seen: SeenRequests, *, default: bool = False, dependency: bool = False) -> Any:
    from tidegate.fastapi import RateLimit, Tidegate

    app = FastAPI()
    key = client_ip(trusted_proxies=["unix"])
    policy = f"{LIMIT}/hour"
    tg = Tidegate(app, default=policy if default else None, key=key)
    dependencies = [Depends(RateLimit(policy))] if dependency else None

    async def get() -> str:
        seen.admitted.append("http")
        return "ok"

    async def chat(websocket: WebSocket) -> None:
        seen.admitted.append("websocket")
        await websocket.accept()
        await websocket.close()

    limited = (lambda view: view) if default or dependency else tg.limit(policy)
    app.get("/", dependencies=dependencies)(limited(get))
    app.websocket("/ws", dependencies=dependencies)(limited(chat))
    return app


APPS: dict[str, Callable[[SeenRequests], Any]] = {
    "asgi": raw_asgi,
    "fastapi, decorated": starlette_with,
    "fastapi, default": lambda seen: starlette_with(seen, default=True),
    "fastapi, dependency": lambda seen: starlette_with(seen, dependency=True),
}


@contextmanager
def serving(app: Any, seen: SeenRequests, **where: Any) -> Iterator[uvicorn.Server]:
    """Serves the application on a real uvicorn, and notes its requests and its messages."""

    async def observed(scope: Any, receive: Any, send: Any) -> None:
        async def observe(message: Any) -> None:
            seen.sent.append(f"{message['type']} {message.get('code', message.get('status', ''))}".strip())
            await send(message)

        try:
            await app(scope, receive, observe)
        finally:
            seen.arrived.append(scope["type"])

    # Otherwise uvicorn itself would believe X-Forwarded-For from a peer on this machine.
    config = uvicorn.Config(
        observed, log_level="critical", access_log=False, lifespan="off", proxy_headers=False, **where
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield server
    finally:
        server.should_exit = True
        thread.join()


def port_of(server: uvicorn.Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


def reset_at_once(port: int, request: bytes, client: str) -> None:
    """Sends a request and resets its connection. The server reads the request of a client without an address."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request + b"X-Forwarded-For: " + client.encode() + b"\r\n\r\n")


@pytest.mark.parametrize("request_", [UPGRADE, GET], ids=["websocket", "http"])
@pytest.mark.parametrize("make", APPS.values(), ids=APPS.keys())
def test_connections_that_are_reset_at_once_do_not_pass_a_limit(
    make: Callable[[SeenRequests], Any], request_: bytes
) -> None:
    seen = SeenRequests()
    with serving(make(seen), seen, host="127.0.0.1", port=0, ws="wsproto") as server:
        for number in range(RESETS):
            reset_at_once(port_of(server), request_, f"198.51.100.{number}")
        connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=30)
        connection.request("GET", "/", headers={"X-Forwarded-For": "198.51.100.1"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        # A server may notice the reset before it reads the request, but most requests arrive.
        wait_until(lambda: len(seen.arrived) > RESETS // 2)
    # In a framework each of the two views has its own budget.
    assert max(seen.admitted.count(kind) for kind in ("http", "websocket")) <= LIMIT
    assert answer.status == (429 if len(seen.admitted) == LIMIT and "http.response.start 429" in seen.sent else 200)
    if request_ is UPGRADE:
        closed = sum(message in ("websocket.close 1008", "websocket.http.response.start 429") for message in seen.sent)
        assert closed >= len(seen.arrived) - LIMIT - 1, "each was refused by a close"


def test_a_unix_domain_socket_is_trusted_by_word(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "s"), SeenRequests()

    with serving(raw_asgi(seen), seen, uds=path):
        for client in ("198.51.100.1", "198.51.100.2"):
            answers = [get_over_unix(path, client) for _ in range(LIMIT + 1)]
            assert [b" 200" in answer for answer in answers] == [True] * LIMIT + [False]
        assert b" 429" in answers[-1]


@pytest.fixture
def first_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import itertools

    monkeypatch.setattr(keys, "_missing_peers", itertools.count())


TCP, UNIX = ("127.0.0.1", 80), ("/run/app.sock", None)


@pytest.mark.parametrize(
    ("server", "over_unix"),
    [
        pytest.param(UNIX, True, id="uvicorn"),
        # gunicorn cuts the path of its socket as if it were an address.
        pytest.param(("/", "r"), True, id="gunicorn"),
        pytest.param(TCP, False, id="tcp"),
        pytest.param(["::1", 80], False, id="tcp, IPv6"),
        pytest.param(None, False, id="a server that says nothing"),
    ],
)
@pytest.mark.parametrize("trusted", [[], ["unix"]], ids=["untrusted", "trusted"])
def test_only_the_address_of_an_asgi_server_makes_a_unix_domain_socket(
    server: Any, over_unix: bool, trusted: list[str]
) -> None:
    app = TidegateMiddleware(answering, "1/hour", key=client_ip(trusted_proxies=trusted))
    asked: dict[str, Any] = {"client": None, "server": server}
    if not over_unix:
        for _ in range(2):
            with pytest.raises(KeyInvalid, match="does not know the address"):
                call_asgi(app, **asked)
        return
    statuses = [call_asgi(app, headers={"X-Forwarded-For": f"192.0.2.{n}"}, **asked).status for n in (1, 1, 2)]
    assert statuses == ([200, 429, 200] if trusted else [200, 429, 429])


async def answering(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_key_that_needs_no_address_answers_without_one() -> None:
    from tidegate.asgi import header

    app = TidegateMiddleware(answering, "1/hour", key=header("X-API-Key"))
    peerless: dict[str, Any] = {"client": None}
    assert [call_asgi(app, headers={"X-API-Key": "k"}, **peerless).status for _ in range(2)] == [200, 429]
    with pytest.raises(KeyInvalid):
        call_asgi(app, **peerless)


def test_a_refusal_for_a_missing_address_is_logged_once(first_warning: None, caplog: pytest.LogCaptureFixture) -> None:
    app = TidegateMiddleware(answering, "1/hour")
    with caplog.at_level(logging.WARNING, "tidegate.http"):
        for _ in range(50):
            with pytest.raises(KeyInvalid):
                call_asgi(app, client=None)
    assert [record.name for record in caplog.records].count("tidegate.http") == 1
    assert "Unix domain socket" in caplog.text


def test_a_mounted_application_gets_no_websocket_without_an_address() -> None:
    from starlette.applications import Starlette

    from tidegate.fastapi import Tidegate

    accepted: list[str] = []

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "secret"})

    app = Starlette()
    app.mount("/", mounted)
    Tidegate(app, default="1/hour")

    async def run() -> None:
        async def send(message: Any) -> None:
            accepted.append(message["type"])

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": "/ws", "raw_path": b"/ws", "root_path": "", "query_string": b""}
        await app({**scope, "headers": [], "client": None, "server": TCP, "state": {}}, receive, send)

    asyncio.run(run())
    assert accepted == ["websocket.close"]
