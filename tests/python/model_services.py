"""A service with a model (`tests/servers/model_server.py`), for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

from paths import ROOT

# Ignores the proxies of the environment.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class ModelServer:
    """The process of a service, until it is closed."""

    def __init__(self) -> None:
        program = [sys.executable, str(ROOT / "tests" / "servers" / "model_server.py")]
        self._child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None
        self._clients: list[Any] = []
        self.url: str = json.loads(self._child.stdout.readline())["url"]

    def ask(self, path: str) -> Any:
        with _open(self.url + path, timeout=60) as response:
            return json.load(response)

    def calls(self) -> list[dict[str, Any]]:
        return list(self.ask("/-/calls"))

    def client(self, made: Any) -> Any:
        """Closes the client with the service."""
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._child.communicate()
