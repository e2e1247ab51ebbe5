"""Refusals of FastAPI on real servers with several workers, behind middleware, with real clients."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, Request, TextMessage

from harness.ports import free_port
from web import wait_until
from web_servers import end

UVICORN = ["uvicorn", "--factory", "--log-level", "info", "--no-access-log"]
SERVERS = {
    "uvicorn, 3 workers": [*UVICORN, "--workers", "3", "create"],
    "uvicorn, uvloop and httptools": [*UVICORN, "--loop", "uvloop", "--http", "httptools", "create"],
    "gunicorn, 2 workers": [
        "gunicorn", "--log-level", "info", "-w2", "-k", "asgi", "create()",
    ],
}  # fmt: skip
LIMIT = 5
ORIGIN = {"Origin": "http://page.example"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "GET"}


class Server:
    """A server in separate processes, and its log."""

    def __init__(self, command: list[str], store: str, prefix: str, log: Path) -> None:
        self.port = free_port()
        module, *options, app = command
        bind = ["-b", f"127.0.0.1:{self.port}"] if module == "gunicorn" else ["--port", str(self.port)]
        self.log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *options, *bind, f"web_served_refusals:{app}"],
                cwd=Path(__file__).parent,
                env={**os.environ, "TIDEGATE_TEST_STORE": store, "TIDEGATE_TEST_PREFIX": prefix},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            wait_until(self._answers)
        except BaseException:
            self.close()
            raise

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            return self.ask("/nothing").status == 404
        except OSError:
            return False

    def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Any:
        """Sends one request on a new connection, which any of the workers may take."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers=headers or {})
            answer: Any = connection.getresponse()
            answer.text = answer.read()
            return answer
        finally:
            connection.close()

    def at_once(self, path: str, times: int) -> list[Any]:
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.ask(path, headers=ORIGIN))) for _ in range(times)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == times
        return answers

    def connect(self) -> Any:
        """Opens a websocket. Returns its first text, or the status of the refusal."""
        client = WSConnection(ConnectionType.CLIENT)
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(client.send(Request(host="127.0.0.1", target="/ws")))
            while True:
                received = connection.recv(65536)
                client.receive_data(received or None)
                for event in client.events():
                    if isinstance(event, TextMessage):
                        return event.data
                    if isinstance(event, RejectConnection):
                        return event.status_code
                    assert isinstance(event, (AcceptConnection, CloseConnection)), event
                assert received, "the server closed the connection without a word"

    def close(self) -> None:
        end(self._process)


@pytest.fixture(params=SERVERS.values(), ids=SERVERS.keys())
def served(request: pytest.FixtureRequest, redis_url: str, prefix: str, tmp_path: Path) -> Iterator[Server]:
    served = Server(request.param, redis_url, prefix, tmp_path / "log")
    yield served
    served.close()


def test_refusals_pass_all_middleware_of_a_served_application(served: Server) -> None:
    for path in ("/decorated", "/depends", "/default"):
        # A request that no view answers is not charged.
        for _ in range(LIMIT + 1):
            assert served.ask(path, "OPTIONS", PREFLIGHT).status == 200
            assert served.ask(path, "DELETE").status == 405
        answers = served.at_once(path, 3 * LIMIT)
        admitted = [one for one in answers if one.status == 200]
        refused = [one for one in answers if one.status == 429]
        assert (len(admitted), len(refused)) == (LIMIT, 2 * LIMIT), path
        for one in answers:
            assert one.getheader("Access-Control-Allow-Origin") == "http://page.example"
            assert one.getheader("X-Observed") == str(one.status)
        for one in refused:
            assert one.getheader("Content-Type") == "application/problem+json"
            assert json.loads(one.text)["status"] == 429 and 0 < int(one.getheader("Retry-After")) <= 3600
    answers = [served.ask("/inner/own", headers=ORIGIN) for _ in range(LIMIT + 1)]
    assert [one.status for one in answers] == [200] * LIMIT + [429]
    assert json.loads(answers[-1].text) == {"inner": True}
    assert answers[-1].getheader("X-Observed") == "429"
    served.close()
    logged = served.log.read_text()
    assert "Traceback" not in logged and "RuntimeError" not in logged, logged


def test_websockets_of_a_served_application_are_refused_before_they_open(served: Server) -> None:
    texts = [served.connect() for _ in range(LIMIT)]
    assert texts == [f"{LIMIT - 1 - number} left" for number in range(LIMIT)]
    # A server that cannot send the problem answers with 403.
    assert {served.connect() for _ in range(LIMIT)} <= {429, 403}
    served.close()
    logged = served.log.read_text()
    assert "Traceback" not in logged, logged
