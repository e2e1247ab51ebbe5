"""A server in separate processes, which serves an application of `web_served.py`."""

from __future__ import annotations

import http.client
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.ports import free_port

GUNICORN = ["gunicorn", "--log-level", "error", "--keep-alive", "30"]
UVICORN = ["uvicorn", "--factory", "--log-level", "error", "--no-access-log"]
# Frameworks, each with two workers of a server that its users have.
FRAMEWORKS = {
    "aiohttp.web, gunicorn, 2 workers": [*GUNICORN, "-w2", "-k", "aiohttp.GunicornWebWorker", "aiohttp_app()"],
    "litestar, uvicorn, 2 workers": [*UVICORN, "--workers", "2", "litestar_app"],
    "sanic, 2 workers": ["sanic", "--factory", "--workers", "2", "--no-access-logs", "--no-motd", "sanic_app"],
    "falcon, gunicorn, 2 workers with 4 threads": [*GUNICORN, "-w2", "-k", "gthread", "--threads", "4", "falcon_app()"],
}
# Quart needs Python 3.11.
if importlib.util.find_spec("quart"):
    FRAMEWORKS["quart, uvicorn, 2 workers"] = [*UVICORN, "--workers", "2", "quart_app"]


class Served:
    """A server in separate processes."""

    def __init__(self, command: list[str], store: str, prefix: str, log: Any = None) -> None:
        self.port = free_port()
        module, *options, app = command
        bind = ["-b", f"127.0.0.1:{self.port}"] if module == "gunicorn" else ["--port", str(self.port)]
        environ = {**os.environ, "TIDEGATE_TEST_STORE": store, "TIDEGATE_TEST_PREFIX": prefix}
        self.store, self.prefix = store, prefix
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *options, *bind, f"web_served:{app}"],
            cwd=Path(__file__).parent,
            env=environ,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                assert self.get("/nothing")[0] == 404
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise
                time.sleep(0.05)

    def get(self, path: str, connection: http.client.HTTPConnection | None = None) -> tuple[int, dict[str, str], bytes]:
        used = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            used.request("GET", path)
            answer = used.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            if connection is None:
                used.close()

    def close(self) -> None:
        end(self._process)


def end(process: subprocess.Popen[Any]) -> None:
    """Asks the leader of a session to end. If it does not, kills it and everything that it started."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
