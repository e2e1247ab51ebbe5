"""Unix domain sockets: the environs that WSGI servers pass, and real servers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate import KeyInvalid
from tidegate.wsgi import client_ip
from web import call_wsgi, get_over_unix, listens, wait_until
from web_adapters import FlaskAdapter, WsgiAdapter
from web_django_adapters import DjangoAdapter


def unix_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX)


# The environs that servers make for a client of a Unix domain socket.
UNIX_ENVIRONS: dict[str, Callable[[], dict[str, Any]]] = {
    "gunicorn": lambda: {"REMOTE_ADDR": "", "gunicorn.socket": unix_socket()},
    "nginx before uWSGI": lambda: {"REMOTE_ADDR": "unix:"},
    "gevent": lambda: {"SERVER_NAME": "", "SERVER_PORT": ""},
    "uvicorn's bridge": lambda: {"SERVER_NAME": "/run/app.sock", "SERVER_PORT": None},
    "asgiref's bridge": lambda: {"SERVER_NAME": "/run/app.sock", "SERVER_PORT": "0"},
}
# A bridge has no REMOTE_ADDR for a connection that was reset.
OTHER_ENVIRONS: dict[str, Callable[[], dict[str, Any]]] = {
    "missing": dict,
    "empty": lambda: {"REMOTE_ADDR": ""},
    "gunicorn": lambda: {"REMOTE_ADDR": "", "gunicorn.socket": socket.socket(), "SERVER_NAME": "/made/up"},
}


def wsgi_apps(trusted: list[str]) -> Iterator[Any]:
    for adapter in (FlaskAdapter(), WsgiAdapter(), DjangoAdapter()):
        yield adapter.make("1/hour", key=client_ip(trusted_proxies=trusted)).app


@pytest.mark.parametrize("environ", UNIX_ENVIRONS.values(), ids=UNIX_ENVIRONS.keys())
@pytest.mark.parametrize("trusted", [[], ["unix"]], ids=["untrusted", "trusted"])
def test_a_wsgi_server_on_a_unix_domain_socket(environ: Callable[[], dict[str, Any]], trusted: list[str]) -> None:
    for app in wsgi_apps(trusted):
        statuses = []
        for client in (1, 1, 2):
            statuses.append(call_without_peer(app, environ(), f"192.0.2.{client}").status)
        assert statuses == ([200, 429, 200] if trusted else [200, 429, 429]), app


@pytest.mark.parametrize("environ", OTHER_ENVIRONS.values(), ids=OTHER_ENVIRONS.keys())
@pytest.mark.parametrize("trusted", [[], ["unix"]], ids=["untrusted", "trusted"])
def test_a_wsgi_server_that_does_not_know_its_peer(environ: Callable[[], dict[str, Any]], trusted: list[str]) -> None:
    for app in wsgi_apps(trusted):
        status = None
        try:
            status = call_without_peer(app, environ(), "192.0.2.1").status
        except KeyInvalid as error:
            assert "does not know the address" in str(error)
        assert status in (None, 500), "it raises, and no request is admitted"


def call_without_peer(app: Any, more: dict[str, Any], client: str) -> Any:
    def without(environ: dict[str, Any], start_response: Any) -> Any:
        if "REMOTE_ADDR" not in more:
            del environ["REMOTE_ADDR"]
        return app(environ, start_response)

    try:
        return call_wsgi(without, headers={"X-Forwarded-For": client}, **more)
    finally:
        if (connection := more.get("gunicorn.socket")) is not None:
            connection.close()


UNIX_APPS = """
from tidegate.asgi import TidegateMiddleware as Asgi, client_ip
from tidegate.wsgi import TidegateMiddleware as Wsgi

async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

def respond(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

key = client_ip(trusted_proxies=["unix"])
asgi, wsgi = Asgi(answer, "1/hour", key=key), Wsgi(respond, "1/hour", key=key)
"""


@pytest.mark.parametrize("worker", ["sync", "gthread", "gevent", "asgi"])
def test_gunicorn_on_a_unix_domain_socket(worker: str, tmp_path: Path) -> None:
    (tmp_path / "unix_apps.py").write_text(UNIX_APPS)
    path = tmp_path / "s"
    app = "asgi" if worker == "asgi" else "wsgi"
    command = ["gunicorn", "-k", worker, "-b", f"unix:{path}", "--chdir", str(tmp_path), "--log-level", "error"]
    server = subprocess.Popen([sys.executable, "-m", *command, f"unix_apps:{app}"], cwd=tmp_path)
    try:
        # The path exists before the server listens.
        wait_until(lambda: listens(str(path)) or server.poll() is not None)
        answers = [get_over_unix(str(path), f"192.0.2.{client}") for client in (1, 1, 2)]
    finally:
        server.terminate()
        server.wait(20)
    assert [answer.split()[1] for answer in answers] == [b"200", b"429", b"200"]
