"""Real servers with several workers, under concurrent requests."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_sfv import List

from tidegate import Limiter
from web_servers import FRAMEWORKS, GUNICORN, UVICORN, Served

SERVERS = {
    "flask, gunicorn, 2 workers with 4 threads": [*GUNICORN, "-w2", "-k", "gthread", "--threads", "4", "flask_app()"],
    "flask, gunicorn, preloaded": [*GUNICORN, "-w3", "--preload", "flask_app()"],
    "flask, gunicorn, gevent": [*GUNICORN, "-w2", "-k", "gevent", "flask_app()"],
    "fastapi, uvicorn, 3 workers": [*UVICORN, "--workers", "3", "fastapi_app"],
    "fastapi, uvicorn, uvloop": [*UVICORN, "--loop", "uvloop", "--http", "httptools", "fastapi_app"],
    "django, gunicorn, 2 workers with 4 threads": [
        *GUNICORN, "-w2", "-k", "gthread", "--threads", "4", "django_wsgi()",
    ],
    "rest framework, gunicorn, 2 workers with 4 threads": [
        *GUNICORN, "-w2", "-k", "gthread", "--threads", "4", "rest_framework_wsgi()",
    ],
    "django, uvicorn, 2 workers": [*UVICORN, "--workers", "2", "--lifespan", "off", "django_asgi"],
    **FRAMEWORKS,
}  # fmt: skip


# Started once, because three processes that import a framework take seconds. The tests have different policies.
@pytest.fixture(scope="module", params=SERVERS.values(), ids=SERVERS.keys())
def served(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Served]:
    served = Served(request.param, redis_url, f"served{os.getpid()}-{request.param_index}")
    yield served
    served.close()


def test_concurrent_requests_are_admitted_exactly_up_to_the_limit(served: Served) -> None:
    answers: list[tuple[int, dict[str, str], bytes]] = []

    def visit() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        for _ in range(20):
            try:
                answers.append(served.get("/crowd", connection))
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server may close an idle connection. It has not read the request then.
                connection.close()
        connection.close()

    threads = [threading.Thread(target=visit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    admitted = [answer for answer in answers if answer[0] == 200]
    refused = [answer for answer in answers if answer[0] == 429]
    assert len(admitted) == 50 and len(admitted) + len(refused) == len(answers) > 150
    assert sorted(int(headers["x-ratelimit-remaining"]) for _, headers, _ in admitted) == list(range(50))
    assert len({headers["x-ratelimit-reset"] for _, headers, _ in answers}) == 1, (
        "the reset time is the same in all responses"
    )
    for _, headers, body in refused:
        assert json.loads(body)["violated-policies"] == ["crowd-1"]
        assert 0 < int(headers["retry-after"]) <= 3600
        for name, items in (("ratelimit", ["crowd-1"]), ("ratelimit-policy", ["crowd-1", "crowd-2"])):
            parsed = List()
            parsed.parse(headers[name].encode())
            assert [str(item.value) for item in parsed] == items


def test_the_times_in_headers_are_true(served: Served) -> None:
    # A request opens the window.
    status, headers, _ = served.get("/short")
    assert status == 200
    while status == 200:
        status, headers, _ = served.get("/short")
    assert status == 429
    reset, wait = int(headers["x-ratelimit-reset"]), int(headers["retry-after"])
    assert 0 <= reset - time.time() <= 3
    time.sleep(wait)
    status, _, _ = served.get("/short")
    assert status == 200, "a client that waits for Retry-After is admitted"


def test_a_client_that_disconnects_gives_back_the_hold(served: Served) -> None:
    limiter = Limiter(served.store, prefix=served.prefix, timeout=10.0, policies={"held": "concurrency 2"})
    client: Any = socket.create_connection(("127.0.0.1", served.port))
    client.sendall(b"GET /held HTTP/1.1\r\nHost: test\r\n\r\n")
    assert client.recv(4096)
    assert limiter.peek("held", "k").remaining == 1, "it lasts as long as the stream"
    client.close()
    deadline = time.monotonic() + 30
    while limiter.peek("held", "k").remaining < 2:
        assert time.monotonic() < deadline, "the hold was not given back"
        time.sleep(0.02)
    limiter.close()
