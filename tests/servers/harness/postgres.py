"""One PostgreSQL server: its files, its start and its end, and commands to it."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
from typing import Any

from . import process
from .errors import HarnessError
from .ports import free_port
from .server import READY_WITHIN, Shared

MISSING = "PostgreSQL was not found: run `make setup`, or `apt-get install postgresql` as root"
USER = "harness"
DATABASE = "postgres"


def program(name: str) -> str:
    # Debian keeps them out of PATH, in a folder of their version.
    found = shutil.which(name) or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)
    if found is None:
        raise HarnessError(MISSING)
    return found


def owner() -> pwd.struct_passwd | None:
    """The user that runs the server: PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        raise HarnessError("PostgreSQL does not run as root, and there is no user postgres") from None


class PostgresServer:
    """A server that can be started, stopped, continued, killed, and started again on the same port with its data."""

    database = DATABASE

    def __init__(self, shared: Shared, index: int, primary: PostgresServer | None = None) -> None:
        self.index = index
        self.port = 0
        self.directory = os.path.join(shared.directory, str(index))
        self._shared = shared
        self.role = "standby" if primary else "primary"
        self.disk = f"{self.directory}-disk"
        self._primary = primary
        self._owner = owner()
        self._log = os.path.join(shared.directory, f"{index}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        password = self._shared.options.password
        return f"postgresql://{USER}{password and ':' + password}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        if self.alive:
            raise HarnessError(f"server {self.index} is running already")
        if not os.path.exists(self.directory):
            self.port = free_port(with_bus=False)
            self._make()
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.directory,
            "fsync": "off",
            **self._shared.options.config,
        }
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        size = self._shared.options.disk
        self._process = process.spawn(
            [program("postgres"), "-D", self.directory, *arguments],
            self._log,
            {},
            self._owner,
            (self.disk, size) if size else None,
        )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                self.command("SELECT 1")
                return
            except HarnessError as failure:
                if not self.alive or time.monotonic() > deadline:
                    with open(self._log, encoding="utf-8", errors="replace") as file:
                        tail = "".join(file.readlines()[-20:])
                    raise HarnessError(f"PostgreSQL does not answer: {failure}\n{tail}") from None
                time.sleep(0.05)

    def start_again(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """Kills it, as a power cut would. Its processes notice that the first one is gone."""
        if self._process is not None:
            children = self._children() if self.alive else []
            process.kill(self._process)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def stop(self) -> None:
        """Stops it (SIGSTOP): its connections stay open and silent."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes `stop`."""
        self._signal(signal.SIGCONT)

    def jump(self, _seconds: float) -> None:
        raise HarnessError("the clock of PostgreSQL cannot be set")

    def command(self, *statements: object) -> Any:
        """Runs statements one after the other. Returns the rows of the last one, with a tab between their columns."""
        words = [
            program("psql"),
            "-XqAt",
            "-F",
            "\t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            self.directory,
            "-p",
            str(self.port),
        ]
        words += ["-U", USER, DATABASE]
        for statement in statements:
            words += ["-c", str(statement)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        if ended.returncode != 0:
            raise HarnessError(ended.stderr.strip())
        return ended.stdout.splitlines()

    def describe(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "host": "127.0.0.1",
            "port": self.port,
            "tls_port": None,
            "unix": self.directory,
            "pid": self._process.pid if self._process else None,
            "alive": self.alive,
            "dir": self.directory,
            "disk": self.disk,
            "log": self._log,
        }

    def _make(self) -> None:
        password = self._shared.options.password
        for folder in (self.directory, self.disk):
            os.makedirs(folder, mode=0o700)
        secret = f"{self.directory}.password"
        with open(secret, "w", encoding="utf-8") as file:
            file.write(password)
        if self._owner is not None:
            # The server's user must reach its folder.
            os.chmod(self._shared.directory, 0o711)
            for path in (self.directory, self.disk, secret):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        if self._primary is not None:
            follows = ["-h", self._primary.directory, "-p", str(self._primary.port), "-U", USER]
            command = [program("pg_basebackup"), "-D", self.directory, "-R", "-c", "fast", *follows]
        else:
            command = [program("initdb"), "-D", self.directory, "-U", USER, "-E", "UTF8", "--no-locale", "-N"]
            command += ["--auth-local=trust", f"--auth-host={'scram-sha-256' if password else 'trust'}"]
            command += ["--pwfile", secret] if password else []
        made = process.spawn(command, self._log, {}, self._owner)
        if made.wait() != 0:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                raise HarnessError(f"{os.path.basename(command[0])} failed:\n{file.read()}")

    def _children(self) -> list[int]:
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as file:
            return [int(number) for number in file.read().split()]

    def _signal(self, number: int) -> None:
        if self._process is None or not self.alive:
            raise HarnessError(f"server {self.index} is not running")
        # The first process last, so that it replaces none that a signal has reached.
        for child in [*self._children(), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
