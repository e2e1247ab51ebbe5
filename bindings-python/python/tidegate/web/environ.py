"""Reads a WSGI environ, for the frameworks whose requests have one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

# These headers have no HTTP_ before their names.
_WITHOUT_PREFIX = {"CONTENT_TYPE", "CONTENT_LENGTH"}


class EnvironAdapter:
    """The part of a RequestAdapter that reads the environ; each framework adds its own user and claims."""

    authentication = "it has to run earlier"

    def environ(self, request: Any) -> Mapping[str, Any]:
        """The environ of a framework's request."""
        raise NotImplementedError

    def peer(self, request: Any) -> str | None:
        """The address at the other end of the connection."""
        address: str | None = self.environ(request).get("REMOTE_ADDR")
        # nginx passes that on for a client of its own Unix domain socket.
        return None if address == "unix:" else address

    def over_unix(self, request: Any) -> bool:
        """Whether the server says that it listens on a Unix domain socket."""
        environ = self.environ(request)
        if environ.get("REMOTE_ADDR") == "unix:":
            return True
        # WSGI has no word for it. gunicorn tells its socket; other servers have a path as their name, or no port.
        if (connection := environ.get("gunicorn.socket")) is not None:
            return getattr(connection, "family", None) == getattr(socket, "AF_UNIX", -1)
        return "/" in environ.get("SERVER_NAME", "") or environ.get("SERVER_PORT", "0") in (None, "", "None")

    def header(self, request: Any, name: str) -> str | None:
        """The value of a header."""
        field = name.upper().replace("-", "_")
        return self.environ(request).get(field if field in _WITHOUT_PREFIX else "HTTP_" + field)

    def forwarded(self, request: Any) -> list[bytes]:
        """The lines of X-Forwarded-For. There is one at most: a server joins the lines of a header."""
        line = self.environ(request).get("HTTP_X_FORWARDED_FOR")
        return [] if line is None else [line.encode("latin-1", "replace")]
