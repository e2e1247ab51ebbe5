"""One round of a web application: starts it, sends it requests from another core, and ends it.

Its arguments are `name=value`: framework, contender, limits, url, core (of the application), load (the
program that sends it), connections, warm, seconds. It prints one line of JSON as every contender does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Application:
    """A web application in a separate process, with one worker."""

    def __init__(self, given: dict[str, str]) -> None:
        framework, contender, store = given["framework"], given["contender"], given["url"]
        pinned = ["taskset", "-c", given["core"]]
        if framework == "express":
            words = ["node", str(HERE.parent / "node" / "http-app.mjs"), contender, given["limits"], store]
            self.process = subprocess.Popen([*pinned, *words], stdout=subprocess.PIPE, text=True)
            assert self.process.stdout is not None
            self.port = int(self.process.stdout.readline())
            return
        if contender == "tidegate, memory":
            contender, store = "tidegate", "memory://"
        self.port = free_port()
        environ = {**os.environ, "BENCH_FRAMEWORK": framework, "BENCH_LIMITER": contender, "BENCH_STORE": store}
        bind = f"127.0.0.1:{self.port}"
        if framework == "flask":
            words = ["gunicorn", "-w1", "-k", "gthread", "--threads", "4", "-b", bind]
            words += ["--keep-alive", "60", "--log-level", "error", "web_apps:create()"]
        else:
            words = ["uvicorn", "--factory", "web_apps:create", "--port", str(self.port)]
            words += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
        self.process = subprocess.Popen([*pinned, sys.executable, "-m", *words], cwd=HERE, env=environ, text=True)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def processes(self) -> list[int]:
        """The process and its workers."""
        found = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            # A thread may end meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found += [int(word) for word in (task / "children").read_text().split()]
        return found

    def cpu(self) -> float:
        """The CPU time of all its threads so far, in seconds."""
        files = [file for process in self.processes() for file in Path(f"/proc/{process}/task").glob("*/schedstat")]
        return sum(int(file.read_text().split()[0]) for file in files) / 1e9

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def load(given: dict[str, str], port: int, seconds: str) -> dict[str, Any]:
    arguments = ["mode=http-load", f"port={port}", f"connections={given['connections']}", f"seconds={seconds}"]
    done = subprocess.run([given["load"], *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    # The application ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    application = Application(given)
    try:
        warm = load(given, application.port, given["warm"])
        before = application.cpu()
        measured = load(given, application.port, given["seconds"])
        cpu = (application.cpu() - before) * 1e6 / measured["decisions"]
    finally:
        application.close()
    decisions = warm["decisions"] + measured["decisions"]
    beside = {"application CPU, µs": cpu, **measured["beside"]}
    print(json.dumps({"value": measured["value"], "decisions": decisions, "beside": beside}))


if __name__ == "__main__":
    main()
