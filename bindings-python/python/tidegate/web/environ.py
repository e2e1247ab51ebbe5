"""How a WSGI environ is read, for the frameworks whose requests have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# These have no HTTP_ before their names.
_BARE = {"CONTENT_TYPE", "CONTENT_LENGTH"}


class EnvironFace:
    """What of a request is in its environ; whom it belongs to, each framework says in its own way."""

    def environ(self, request: Any) -> Mapping[str, Any]:
        """The environ of a framework's request."""
        raise NotImplementedError

    def peer(self, request: Any) -> str | None:
        """The address at the other end of the connection."""
        return self.environ(request).get("REMOTE_ADDR")

    def header(self, request: Any, name: str) -> str | None:
        """A header's value."""
        field = name.upper().replace("-", "_")
        return self.environ(request).get(field if field in _BARE else "HTTP_" + field)

    def forwarded(self, request: Any) -> list[bytes]:
        """X-Forwarded-For: a server joins the lines of one name, so there is one."""
        line = self.environ(request).get("HTTP_X_FORWARDED_FOR")
        return [] if line is None else [line.encode("latin-1")]
