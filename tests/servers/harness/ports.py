"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket

from .errors import HarnessError

# Above the well-known services and, with the cluster bus added, below 32768, where Linux begins to hand out ports to
# outgoing connections: a port from that range could be taken between the look and the bind.
LOWEST = 11_000
HIGHEST = 22_000

# A cluster node listens for its peers this far above its own port. Redis fixes the distance.
BUS_OFFSET = 10_000

_taken: set[int] = set()


def free_port(with_bus: bool = False) -> int:
    """A port nobody listens on now, given out once by this process.

    Another process may still take it first. Only the server's own bind decides, so the caller retries.
    """
    for _ in range(1_000):
        port = random.randrange(LOWEST, HIGHEST)
        if port in _taken or not _can_bind(port):
            continue
        if with_bus and not _can_bind(port + BUS_OFFSET):
            continue
        _taken.add(port)
        return port
    raise HarnessError(f"no free port between {LOWEST} and {HIGHEST}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Redis does, or a port would count as taken for a minute after its server went away.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
