"""Services that keep strict books of their admissions (`tests/servers/strict_server.py`), for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from types import TracebackType
from typing import Any

from paths import ROOT

PROGRAM = ROOT / "tests" / "servers" / "strict_server.py"
# Ignores the proxies of the environment.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _ask(url: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with _open(urllib.request.Request(url, data, method=method), timeout=60) as response:
        return json.load(response)


class StrictService:
    """A service on its own port."""

    def __init__(self, url: str) -> None:
        self.url = url

    def counts(self) -> dict[str, Any]:
        """Returns `admitted` and `refused`, rows of `seconds`, `busy` seconds, `most` at once, and `running` now."""
        return dict(_ask(f"{self.url}/-/counts"))

    def requests(self) -> list[dict[str, Any]]:
        """Returns the requests: `at` (unix seconds), `method`, `target`, `status` and the length of the `body`."""
        return list(_ask(f"{self.url}/-/requests"))

    def targets(self) -> list[str]:
        return [one["target"] for one in self.requests()]

    def change(self, *limits: int) -> None:
        """Changes the limits of its books."""
        _ask(f"{self.url}/-/limits", list(limits), "PUT")


class StrictServer:
    """A process that runs services, until `close` or the end of this one."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        self._control = json.loads(self._child.stdout.readline())["url"]

    def __enter__(self) -> StrictServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def service(self, book: str = "", limit: int = 0, window: float = 1, dialect: str = "ietf") -> StrictService:
        """Starts a service with one limit, or with none."""
        return self.service_of(*([{"book": book, "limit": limit, "window": window}] if book else []), dialect=dialect)

    def service_of(self, *limits: dict[str, Any], dialect: str = "ietf") -> StrictService:
        """Starts a service with these limits."""
        answer = _ask(self._control, {"limits": limits, "dialect": dialect})
        if not answer["ok"]:
            raise ValueError(answer["error"])
        return StrictService(answer["url"])

    def close(self) -> None:
        self._child.communicate()
