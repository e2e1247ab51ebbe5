"""The life of one harness: start what was asked for, obey, clean up."""

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
from .server import CONTROL_USER, Server, Shared
from .topology import KINDS

MISSING = "{} was not found: run `make setup`, or `apt-get install redis-server redis-sentinel` as root"


def main(arguments: list[str]) -> int:
    """Runs a harness as `servers.py '{"kind": …, "options": {…}}'` asks for it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    servers: list[Server] = []
    directory = tempfile.mkdtemp(prefix="tidegate-")
    guardian = Guardian(directory)
    try:
        _say(_start(arguments, directory, servers))
        for line in sys.stdin:
            if line.strip():
                _say(_obey(line, servers))
        return 0
    except HarnessError as error:
        _say({"ok": False, "error": str(error)})
        return 1
    finally:
        # From here on nothing may interrupt: a second Ctrl-C would leave servers running.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for server in servers:
            server.kill()
        guardian.dismiss()


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _say(message: dict[str, Any]) -> None:
    try:
        print(json.dumps(message), flush=True)
    except BrokenPipeError:
        # Nobody listens any more. Point stdout elsewhere, or Python complains once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _start(arguments: list[str], directory: str, servers: list[Server]) -> dict[str, Any]:
    kind, options = _request(arguments)
    wanted = os.environ.get("TIDEGATE_REDIS_SERVER", "redis-server")
    binary = shutil.which(wanted)
    if binary is None:
        raise HarnessError(MISSING.format(wanted))
    papers = None
    if options.tls:
        papers = certificates.make(os.path.join(directory, "tls"), expired=options.expired)
    shared = Shared(binary, directory, secrets.token_hex(16), options, papers)
    topology = KINDS[kind](shared, servers)
    return {
        "ok": True,
        "kind": kind,
        "url": topology.url,
        "urls": topology.urls,
        "servers": [server.describe() for server in servers],
        "tls": papers.describe() if papers else None,
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


def _restart(server: Server) -> None:
    server.kill()
    server.start_again()


ORDERS: dict[str, Callable[[Server], None]] = {
    "kill": Server.kill,
    "stop": Server.stop,
    "cont": Server.resume,
    "start": Server.start_again,
    "restart": _restart,
}


def _obey(line: str, servers: list[Server]) -> dict[str, Any]:
    try:
        order = json.loads(line)
        what, server = order["do"], servers[order.get("server", 0)]
        if what == "command":
            return {"ok": True, "reply": server.command(*order["args"])}
        if what == "clock":
            server.jump(float(order["seconds"]))
            return {"ok": True}
        if what not in ORDERS:
            raise HarnessError(f"unknown order {what!r}; known are {', '.join([*ORDERS, 'command', 'clock'])}")
        ORDERS[what](server)
        return {"ok": True, "server": server.describe()}
    except HarnessError as error:
        return {"ok": False, "error": str(error)}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return {"ok": False, "error": f"cannot read the order {line.strip()}: {error!r}"}
