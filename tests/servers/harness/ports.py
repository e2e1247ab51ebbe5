"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket

from .errors import HarnessError

# Above the well-known services and, with the cluster bus added, below 32768. From there on Linux gives ports to
# outgoing connections, which could take one between the check and the bind.
LOWEST = 11_000
HIGHEST = 22_000

# A cluster node listens for its peers this far above its own port. Redis fixes the distance.
BUS_OFFSET = 10_000

_taken: set[int] = set()


def free_port(with_bus: bool = False) -> int:
    """A port that is free now, returned once by this process.

    Another process may still take it first, so the caller must retry when the server cannot bind.
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
        # As Redis does. Without it a port would seem taken for a minute after its server has ended.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
