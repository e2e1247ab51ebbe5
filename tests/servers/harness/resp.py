"""Just enough of the Redis protocol (RESP2) to control and to test a server."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, BinaryIO

from .errors import HarnessError


class ReplyError(HarnessError):
    """The server answered with an error."""


class Connection:
    """One blocking connection over a connected socket, which it closes. Replies are text, numbers, lists and None."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader: BinaryIO = connected.makefile("rb")

    @classmethod
    def unix(cls, path: str, timeout: float = 30.0) -> Connection:
        """Connects to a unix socket."""
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(timeout)
            connecting.connect(path)
            return cls(connecting)
        except OSError:
            connecting.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.close()
        self._socket.close()

    def command(self, *words: object) -> Any:
        """Sends one command and waits for its reply. Raises an error reply."""
        encoded = [str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        for word in encoded:
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self._socket.sendall(b"".join(parts))
        reply = self._read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _read(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            # Returned, not raised, because within a list the rest of the list must still be read.
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._read_bulk(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise HarnessError(f"a reply that is not RESP2: {line!r}")

    def _read_bulk(self, length: int) -> str | None:
        if length < 0:
            return None
        body = self._reader.read(length + 2)
        if len(body) != length + 2:
            raise ConnectionError("the server closed the connection")
        return body[:-2].decode("utf-8", "replace")
