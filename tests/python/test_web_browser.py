"""A limit as a page of another origin sees it: in a real browser, headless, on this machine alone."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tidegate.fastapi import RateLimit, Tidegate
from web_uvicorn import serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
# The fields of a response that a page of another origin may read.
EXPOSED = ["RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Remaining"]
PATHS = ["/decorated", "/depends", "/default"]

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(BROWSERS)}")

# The header X-Page makes the browser ask first, with a preflight.
PAGE = """
<script>
const api = 'API';
async function ask(path) {
  try {
    const response = await fetch(api + path, { headers: { 'X-Page': '1' }, cache: 'no-store' });
    const headers = Object.fromEntries(NAMES.map((name) => [name, response.headers.get(name)]));
    return { status: response.status, headers, body: await response.text() };
  } catch (error) {
    return { error: String(error) };
  }
}
function connect() {
  return new Promise((resolve) => {
    const socket = new WebSocket(api.replace('http', 'ws') + '/ws');
    socket.onopen = () => resolve('open');
    socket.onclose = () => resolve('refused');
  });
}
async function main() {
  const seen = {};
  for (const path of PATHS) seen[path] = [await ask(path), await ask(path)];
  seen.sockets = [await connect(), await connect()];
  return seen;
}
main().catch((error) => ({ error: String(error) })).then((seen) =>
  fetch('/report', { method: 'POST', body: JSON.stringify(seen) }));
</script>
"""


def api(expose: list[str]) -> FastAPI:
    app = FastAPI()
    tg = Tidegate(app, default="1/hour")

    @app.get("/decorated")
    @tg.limit("1/hour")
    async def decorated() -> str:
        return "ok"

    @app.get("/depends", dependencies=[Depends(RateLimit("1/hour"))])
    async def depends() -> str:
        return "ok"

    @app.get("/default")
    def default() -> str:
        return "ok"

    @app.websocket("/ws")
    @tg.limit("1/hour")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.receive()

    @app.middleware("http")
    async def observe(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app.add_middleware(
        CORSMiddleware, allow_origin_regex=r"http://localhost:\d+", allow_headers=["X-Page"], expose_headers=expose
    )
    return app


def page(api: str, reports: queue.Queue[Any]) -> Starlette:
    async def index(request: Request) -> HTMLResponse:
        names = json.dumps(EXPOSED)
        return HTMLResponse(PAGE.replace("API", api).replace("NAMES", names).replace("PATHS", json.dumps(PATHS)))

    async def report(request: Request) -> Response:
        reports.put(await request.json())
        return JSONResponse({})

    return Starlette(routes=[Route("/", index), Route("/report", report, methods=["POST"])])


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Any]:
    started: list[subprocess.Popen[bytes]] = []

    def run(url: str) -> None:
        options = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--no-proxy-server"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        options += [f"--user-data-dir={tmp_path}", "--remote-debugging-port=0"]
        if os.getuid() == 0:
            options.append("--no-sandbox")
        command = [str(BROWSER), *options, url]
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True))

    yield run
    for process in started:
        # Its children are in its process group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def seen_by_the_page(browse: Any, expose: list[str]) -> Any:
    reports: queue.Queue[Any] = queue.Queue()
    with serving(api(expose)) as api_port:
        # Another port is another origin.
        with serving(page(f"http://127.0.0.1:{api_port}", reports)) as page_port:
            browse(f"http://localhost:{page_port}/")
            return reports.get(timeout=120)


def test_a_page_of_another_origin_reads_a_refusal_and_its_fields(browse: Any) -> None:
    seen = seen_by_the_page(browse, EXPOSED)
    for path in PATHS:
        admitted, refused = seen[path]
        # The preflight before the first request was not charged.
        assert (admitted["status"], admitted["body"]) == (200, '"ok"'), (path, seen)
        assert refused["status"] == 429, (path, seen)
        assert json.loads(refused["body"])["violated-policies"]
        assert 0 < int(refused["headers"]["Retry-After"]) <= 3780
        assert refused["headers"]["X-RateLimit-Remaining"] == "0"
        assert refused["headers"]["RateLimit"] and refused["headers"]["RateLimit-Policy"]
    assert seen["sockets"] == ["open", "refused"]


def test_a_page_reads_no_field_that_is_not_exposed(browse: Any) -> None:
    seen = seen_by_the_page(browse, [])
    for path in PATHS:
        assert [one["status"] for one in seen[path]] == [200, 429]
        assert set(seen[path][1]["headers"].values()) == {None}
