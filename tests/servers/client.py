"""Real Redis servers for Python tests: `with Servers("single", tls=True) as servers: connect(servers.url)`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = Path(__file__).with_name("servers.py")


class ServersError(Exception):
    """The harness reported an error."""


class Servers:
    """A harness as a child process. Its servers live until `close`, or until this process ends in any way."""

    def __init__(self, kind: str = "single", **options: Any) -> None:
        request = json.dumps({"kind": kind, "options": options})
        self._child = subprocess.Popen(
            [sys.executable, str(PROGRAM), request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        try:
            self.json: dict[str, Any] = self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the whole arrangement."""
        return str(self.json["url"])

    @property
    def urls(self) -> dict[str, Any]:
        """The URL of each endpoint by name: tcp, tls, unix, primary, replicas, …"""
        return dict(self.json["urls"])

    @property
    def servers(self) -> list[dict[str, Any]]:
        """Role, port, process and files of each server, as they were at the start."""
        return list(self.json["servers"])

    def port(self, server: int = 0) -> int:
        """The plain TCP port of one server."""
        return int(self.servers[server]["port"])

    def kill(self, server: int = 0) -> None:
        """Kills a server."""
        self._run("kill", server)

    def stop(self, server: int = 0) -> None:
        """Stops a server (SIGSTOP): its connections stay open and silent."""
        self._run("stop", server)

    def cont(self, server: int = 0) -> None:
        """Continues a stopped server."""
        self._run("cont", server)

    def start(self, server: int = 0) -> None:
        """Starts a killed server again: same port, no data."""
        self._run("start", server)

    def restart(self, server: int = 0) -> None:
        """`kill` and `start`."""
        self._run("restart", server)

    def clock(self, seconds: float, server: int = 0) -> None:
        """Sets a server's wall clock ahead, or back. It needs the option `clock`."""
        self._run("clock", server, seconds=seconds)

    def command(self, *words: object, server: int = 0) -> Any:
        """Runs a Redis command as the harness's own user, which exists beside all users of the test."""
        return self._run("command", server, args=[str(word) for word in words])["reply"]

    def close(self) -> None:
        """Ends the servers, and waits until their processes and files are gone."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _run(self, what: str, server: int, **more: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": what, "server": server, **more}) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ServersError("the server harness ended unexpectedly; its message is on stderr")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise ServersError(answer["error"])
        return answer
