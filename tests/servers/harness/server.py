"""One Redis process: its files, its start and its end, and commands to it."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, NamedTuple

from . import process
from .certificates import Certificates
from .clock import Clock
from .errors import HarnessError
from .options import Options
from .ports import free_port
from .resp import Connection, ReplyError

READY_WITHIN = 60.0  # seconds. A loaded machine needs one or more, a broken server never gets there

# The harness's own user in every server. It can send commands, whatever users and passwords a test sets up.
CONTROL_USER = "harness"


class Shared(NamedTuple):
    """The settings that all servers of one harness share."""

    binary: str
    directory: str
    control_password: str
    options: Options
    certificates: Certificates | None


class Server:
    """A server that can be started, stopped, continued, killed, and started again on the same port."""

    def __init__(self, shared: Shared, index: int, role: str, settings: list[str] | None = None) -> None:
        self.role = role
        self.index = index
        self.port = 0
        self.tls_port: int | None = None
        self.directory = os.path.join(shared.directory, str(index))
        self.socket = os.path.join(self.directory, "s")  # short, as a socket's path has room for about 100 bytes
        self._shared = shared
        self._settings = settings or []
        self._log = os.path.join(self.directory, "log")
        self._process: subprocess.Popen[bytes] | None = None
        self._clock: Clock | None = None

    @property
    def sentinel(self) -> bool:
        """True for a sentinel, which keeps no data and takes fewer settings."""
        return self.role == "sentinel"

    @property
    def clustered(self) -> bool:
        """True for a node of a cluster, which listens on a second port."""
        return any(line.startswith("cluster-enabled") for line in self._settings)

    @property
    def alive(self) -> bool:
        """True if its process exists, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Starts the process. `wait_ready` waits until it answers."""
        if self.alive:
            raise HarnessError(f"server {self.index} is running already")
        if not os.path.exists(self.directory):
            os.makedirs(self.directory, mode=0o700)
            if self._shared.options.clock:
                self._clock = Clock(self.directory)
            self._choose_ports()
        self._spawn()

    def wait_ready(self, choose_again: bool = True) -> None:
        """Waits until it answers PING. If another process has taken its port, it gets another port."""
        deadline = time.monotonic() + READY_WITHIN
        while not self._answers():
            if not self.alive and self._lost_its_port() and time.monotonic() < deadline:
                if choose_again:
                    self._choose_ports()
                else:
                    time.sleep(0.1)
                self._spawn()
            elif not self.alive:
                raise HarnessError(f"server {self.index} ({self.role}) ended at its start:\n{self._log_tail()}")
            elif time.monotonic() > deadline:
                raise HarnessError(f"server {self.index} ({self.role}) does not answer:\n{self._log_tail()}")
            time.sleep(0.01)

    def start_again(self) -> None:
        """Starts it after `kill`, with the same port and identity, and without data."""
        self.launch()
        self.wait_ready(choose_again=False)

    def kill(self) -> None:
        """Kills it, as a power cut would."""
        if self._process is not None:
            process.kill(self._process)

    def stop(self) -> None:
        """Stops it (SIGSTOP): its connections stay open and silent."""
        process.stop(self._running())

    def resume(self) -> None:
        """Undoes `stop`."""
        process.resume(self._running())

    def jump(self, seconds: float) -> None:
        """Sets its wall clock ahead, or back."""
        if self._clock is None:
            raise HarnessError('its clock cannot be set: start the servers with the option "clock"')
        self._clock.jump(seconds)

    def command(self, *words: object) -> Any:
        """Runs one command as the harness's own user, over the unix socket."""
        try:
            with Connection.unix(self.socket) as connection:
                connection.command("AUTH", CONTROL_USER, self._shared.control_password)
                return connection.command(*words)
        except OSError as failure:
            raise HarnessError(f"server {self.index} ({self.role}) does not answer: {failure}") from None

    def describe(self) -> dict[str, Any]:
        """Returns it in the form that the harness prints."""
        return {
            "role": self.role,
            "host": "127.0.0.1",
            "port": self.port,
            "tls_port": self.tls_port,
            "unix": self.socket,
            "pid": self._process.pid if self._process else None,
            "alive": self.alive,
            "dir": self.directory,
            "log": self._log,
        }

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.alive:
            raise HarnessError(f"server {self.index} ({self.role}) is not running")
        return self._process

    def _answers(self) -> bool:
        # Over its private socket, because another harness's server might answer on the TCP port.
        try:
            with Connection.unix(self.socket, timeout=1.0) as connection:
                connection.command("AUTH", CONTROL_USER, self._shared.control_password)
                return bool(connection.command("PING") == "PONG")
        except (OSError, ReplyError):
            return False

    def _choose_ports(self) -> None:
        self.port = free_port(with_bus=self.clustered)
        if self._shared.certificates is not None:
            self.tls_port = free_port(with_bus=self.clustered)
        with open(self._config(), "w", encoding="utf-8") as file:
            file.write("\n".join(self._config_lines()) + "\n")

    def _spawn(self) -> None:
        with open(self._log, "wb"):
            pass  # emptied, so that an old "address in use" is not read again
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        command = [self._shared.binary, self._config()]
        if self.sentinel:
            command.append("--sentinel")
        self._process = process.spawn(command, self._log, self._clock.environment if self._clock else {})

    def _lost_its_port(self) -> bool:
        return "ddress already in use" in self._log_tail()

    def _log_tail(self) -> str:
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-20:])

    def _config(self) -> str:
        return os.path.join(self.directory, "conf")

    def _config_lines(self) -> list[str]:
        password = self._shared.control_password
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"unixsocket {self.socket}",
            "unixsocketperm 700",
            f"dir {self.directory}",
            "daemonize no",
            f"user {CONTROL_USER} on >{password} ~* &* +@all",
        ]
        if not self.sentinel:
            options = self._shared.options
            lines += [
                'save ""',
                "appendonly no",
                "repl-diskless-sync-delay 0",
                f"masteruser {CONTROL_USER}",
                f"masterauth {password}",
                *options.config_lines(),
                *self._tls_lines(options.client_certs),
            ]
        return lines + self._settings

    def _tls_lines(self, client_certs: bool) -> list[str]:
        certificates = self._shared.certificates
        if certificates is None:
            return []
        lines = [
            f"tls-port {self.tls_port}",
            f"tls-ca-cert-file {certificates.ca}",
            f"tls-cert-file {certificates.cert}",
            f"tls-key-file {certificates.key}",
            f"tls-auth-clients {'yes' if client_certs else 'no'}",
        ]
        if self.clustered:
            # With this, nodes announce their TLS ports to TLS clients, and to replicas, which must use TLS then.
            lines += ["tls-cluster yes", "tls-replication yes"]
        return lines
