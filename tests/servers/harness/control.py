"""The harness: it starts the servers of a request, runs commands, cleans up."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from typing import Any, Callable

from . import certificates
from .errors import HarnessError
from .guardian import Guardian
from .options import Options
from .server import CONTROL_USER, Shared
from .topology import KINDS

MISSING = "{} was not found: run `make setup`, or `apt-get install redis-server redis-sentinel` as root"


def main(arguments: list[str]) -> int:
    """Runs the harness for `servers.py '{"kind": …, "options": {…}}'`."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    servers: list[Any] = []
    directory = tempfile.mkdtemp(prefix="tidegate-")
    guardian = Guardian(directory)
    try:
        _print(_start(arguments, directory, servers))
        for line in sys.stdin:
            if line.strip():
                _print(_run(line, servers))
        return 0
    except HarnessError as error:
        _print({"ok": False, "error": str(error)})
        return 1
    finally:
        # No interruption from here on, because a second Ctrl-C would leave servers running.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for server in servers:
            server.kill()
        guardian.dismiss()


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _print(message: dict[str, Any]) -> None:
    try:
        print(json.dumps(message), flush=True)
    except BrokenPipeError:
        # The reader is gone. Without another stdout Python would report that once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _start(arguments: list[str], directory: str, servers: list[Any]) -> dict[str, Any]:
    kind, options = _request(arguments)
    program = os.environ.get("TIDEGATE_REDIS_SERVER", "redis-server")
    binary = shutil.which(program)
    if binary is None:
        raise HarnessError(MISSING.format(program))
    files = None
    if options.tls:
        files = certificates.make(os.path.join(directory, "tls"), expired=options.expired)
    shared = Shared(binary, directory, secrets.token_hex(16), options, files)
    topology = KINDS[kind](shared, servers)
    return {
        "ok": True,
        "kind": kind,
        "url": topology.url,
        "urls": topology.urls,
        "servers": [server.describe() for server in servers],
        "tls": files.describe() if files else None,
        "control": {"user": CONTROL_USER, "password": shared.control_password},
        "dir": directory,
        "pid": os.getpid(),
    }


def _request(arguments: list[str]) -> tuple[str, Options]:
    try:
        request = json.loads(arguments[0] if arguments else "{}")
    except ValueError as error:
        raise HarnessError(f"the request is not JSON: {error}") from None
    kind = request.get("kind", "single")
    if kind not in KINDS:
        raise HarnessError(f"unknown kind {kind!r}; known are {', '.join(KINDS)}")
    return kind, Options(request.get("options") or {})


def _restart(server: Any) -> None:
    server.kill()
    server.start_again()


COMMANDS: dict[str, Callable[[Any], None]] = {
    "kill": lambda server: server.kill(),
    "stop": lambda server: server.stop(),
    "cont": lambda server: server.resume(),
    "start": lambda server: server.start_again(),
    "restart": _restart,
}


def _run(line: str, servers: list[Any]) -> dict[str, Any]:
    try:
        command = json.loads(line)
        what, server = command["do"], servers[command.get("server", 0)]
        if what == "command":
            return {"ok": True, "reply": server.command(*command["args"])}
        if what == "clock":
            server.jump(float(command["seconds"]))
            return {"ok": True}
        if what not in COMMANDS:
            raise HarnessError(f"unknown command {what!r}; known are {', '.join([*COMMANDS, 'command', 'clock'])}")
        COMMANDS[what](server)
        return {"ok": True, "server": server.describe()}
    except HarnessError as error:
        return {"ok": False, "error": str(error)}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return {"ok": False, "error": f"cannot read the command {line.strip()}: {error!r}"}
