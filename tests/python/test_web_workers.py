"""Servers with several workers share their limits in a file. In memory each worker warns once that it does not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import url2pathname

import pytest

import web_servers
from tidegate import Limiter
from web_servers import UVICORN, Served

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# A worker that is still starting may miss the request to end.
GUNICORN = [*web_servers.GUNICORN, "--graceful-timeout", "1"]
# For each kind of server its command, and the number of its workers.
SERVERS = {
    "flask, gunicorn": ([*GUNICORN, "-w4", "flask_app()"], 4),
    "flask, gunicorn, preloaded": ([*GUNICORN, "-w4", "--preload", "flask_app()"], 4),
    "flask, gunicorn, gevent, preloaded": ([*GUNICORN, "-w2", "-k", "gevent", "--preload", "flask_app()"], 2),
    "django, gunicorn, threads": ([*GUNICORN, "-w2", "-k", "gthread", "--threads", "2", "django_wsgi()"], 2),
    "fastapi, gunicorn, asgi": ([*GUNICORN, "-w2", "-k", "asgi", "fastapi_app()"], 2),
    "fastapi, uvicorn": ([*UVICORN, "--workers", "2", "fastapi_app"], 2),
    "sanic": (web_servers.FRAMEWORKS["sanic, 2 workers"], 2),
}
ALONE = {
    "flask, gunicorn": [*GUNICORN, "-w1", "flask_app()"],
    "flask, gunicorn, preloaded": [*GUNICORN, "-w1", "--preload", "flask_app()"],
    "fastapi, uvicorn": [*UVICORN, "--workers", "1", "fastapi_app"],
    "sanic": [one if one != "2" else "1" for one in web_servers.FRAMEWORKS["sanic, 2 workers"]],
    "fastapi, uvicorn, reloading": [*UVICORN, "--workers", "2", "--reload", "fastapi_app"],
}
WARNING = "for itself"


@contextmanager
def serving(command: list[str], store: str, log: Path) -> Iterator[Served]:
    with log.open("w") as file:
        served = Served(command, store, f"workers{os.getpid()}", file)
        try:
            yield served
        finally:
            served.close()


def warnings_in(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if WARNING in line]


@pytest.mark.parametrize(("command", "workers"), SERVERS.values(), ids=SERVERS.keys())
def test_workers_share_a_limit_in_a_file(command: list[str], workers: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(command, f"file://{tmp_path}/limits?max_bytes=4MB", log) as served:
        statuses = [served.get("/ten")[0] for _ in range(100)]
    assert (statuses.count(200), statuses.count(429)) == (10, 90)
    assert warnings_in(log) == []


@pytest.mark.parametrize(("command", "workers"), SERVERS.values(), ids=SERVERS.keys())
def test_each_worker_says_once_that_it_counts_for_itself(command: list[str], workers: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(command, "memory://", log) as served:
        deadline = time.monotonic() + 60
        while len(warnings_in(log)) < workers:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert all(served.get("/crowd")[0] == 200 for _ in range(20))
    lines = warnings_in(log)
    assert len({line.split()[0] for line in lines}) == len(lines) == workers, lines
    for line in lines:
        assert f"{workers} workers of {command[0]}" in line
        # The worker's user can use the file under the logged name.
        named = re.search(r"store='(file:///\S*/limits)'", line)
        assert named is not None, line
        Limiter(named[1] + "?max_bytes=1MB").close()
        Path(url2pathname(named[1].removeprefix("file://"))).unlink(missing_ok=True)


@pytest.mark.parametrize("command", ALONE.values(), ids=ALONE.keys())
def test_a_worker_that_is_alone_says_nothing(command: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(command, "memory://", log) as served:
        assert served.get("/ten")[0] == 200
    assert warnings_in(log) == []


def test_workers_on_a_server_say_nothing(redis_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(SERVERS["flask, gunicorn, preloaded"][0], redis_url, log) as served:
        assert served.get("/ten")[0] == 200
    assert warnings_in(log) == []


APP = 'from tidegate.wsgi import TidegateMiddleware as T; make = lambda **o: T(lambda *_: [], "9/s", **o);'
MODULE = "import sys, types; sys.modules['{0}'] = types.SimpleNamespace({1});"
PM2 = {"pm_id": "3", "exec_mode": "fork_mode"}


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({**PM2, "instances": "2", "NODE_APP_INSTANCE": "0"}, "make(); make()", "processes of PM2"),
        ({**PM2, "instances": "1", "NODE_APP_INSTANCE": "1"}, "make()", "processes of PM2"),
        ({**PM2, "instances": "1", "NODE_APP_INSTANCE": "0"}, "make()", None),
        ({**PM2, "instances": "2"}, "make(enabled=False)", None),
        ({"instances": "2"}, "make()", None),
        ({}, MODULE.format("uwsgi", "numproc=3") + "make()", "3 processes of uwsgi"),
        ({}, MODULE.format("uwsgi", "numproc=1") + "make()", None),
        ({}, MODULE.format("mod_wsgi", "maximum_processes=2") + "make()", "2 processes of mod_wsgi"),
        ({}, "import os; make(); os.fork()", None),
        (
            {**PM2, "instances": "2"},
            'from tidegate.limits import TidegateStorage as S; S("tidegate+memory://")',
            "processes of PM2",
        ),
        (
            {**PM2, "instances": "2"},
            'from tidegate import Limiter; from tidegate.requests import PacedAdapter; PacedAdapter(Limiter(), "9/s")',
            "processes of PM2",
        ),
        (
            {**PM2, "instances": "2"},
            "import tidegate; from tidegate.httpx import AsyncPacedTransport as P; P(tidegate.AsyncLimiter(), None)",
            "processes of PM2",
        ),
        (
            {**PM2, "instances": "2"},
            'from flask import Flask; from tidegate.flask import Tidegate; app = Flask("a");'
            'app.config["TIDEGATE_ENABLED"] = False; Tidegate(app)',
            None,
        ),
    ],
)
def test_other_servers_are_known_by_what_they_tell(environment: dict[str, str], code: str, said: str | None) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", APP + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in ended.stderr.splitlines() if WARNING in line]
    assert [line for line in lines if said is not None and said in line] == lines
    assert len(lines) == (said is not None), ended.stderr
