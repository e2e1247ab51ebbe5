"""PgBouncer in transaction mode, in front of one PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Any

from . import process
from .errors import HarnessError
from .ports import free_port
from .postgres import PostgresServer, owner, program
from .server import READY_WITHIN, Shared

MISSING = "PgBouncer was not found: run `make setup`, or `apt-get install pgbouncer` as root"


class PgBouncer:
    """A pooler that can be started, stopped, continued, killed, and started again on the same port."""

    role = "pooler"

    def __init__(self, shared: Shared, index: int, server: PostgresServer) -> None:
        self.index = index
        self.port = free_port(with_bus=False)
        self._server = server
        self._owner = owner()
        self._settings = os.path.join(shared.directory, "pgbouncer.ini")
        self._log = os.path.join(shared.directory, f"{index}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self._server.url.replace(f":{self._server.port}", f":{self.port}")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        # Debian has it in a folder that is in the PATH of root alone.
        binary = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if binary is None:
            raise HarnessError(MISSING)
        if self.alive:
            raise HarnessError(f"server {self.index} is running already")
        lines = [
            "[databases]",
            f"* = host={self._server.directory} port={self._server.port} user=harness",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            "default_pool_size = 4",
            "server_login_retry = 1",
        ]
        with open(self._settings, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self._process = process.spawn([binary, self._settings], self._log, {}, self._owner)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                self.command("SELECT 1")
                return
            except HarnessError:
                if not self.alive or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def start_again(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        if self._process is not None:
            process.kill(self._process)

    def stop(self) -> None:
        process.stop(self._running())

    def resume(self) -> None:
        process.resume(self._running())

    def jump(self, _seconds: float) -> None:
        raise HarnessError("PgBouncer has no clock")

    def command(self, *statements: object) -> Any:
        """Runs statements through the pooler. Returns the rows of the last one."""
        words = [program("psql"), "-XqAt", self.url]
        for statement in statements:
            words += ["-c", str(statement)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        if ended.returncode != 0:
            raise HarnessError(ended.stderr.strip())
        return ended.stdout.splitlines()

    def describe(self) -> dict[str, Any]:
        pid = self._process.pid if self._process else None
        return {
            "role": self.role,
            "host": "127.0.0.1",
            "port": self.port,
            "pid": pid,
            "alive": self.alive,
            "log": self._log,
        }

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.alive:
            raise HarnessError(f"server {self.index} is not running")
        return self._process
