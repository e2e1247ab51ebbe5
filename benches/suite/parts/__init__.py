"""The parts of the benchmark, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Lengths, Part
from . import (
    denied,
    http,
    key_bytes,
    key_counts,
    leases,
    machine,
    memory,
    node,
    outgoing,
    postgres,
    python,
    server,
    start,
    traffic,
)

PARTS: dict[str, Callable[[Lengths], Part]] = {
    "traffic": traffic.part,
    "python": python.part,
    "node": node.part,
    "http": http.part,
    "outgoing": outgoing.part,
    "memory": memory.part,
    "machine": machine.part,
    "postgres": postgres.part,
    "denied": denied.part,
    "leases": leases.part,
    "server": server.part,
    "start": start.part,
    "bytes": key_bytes.part,
    "keys": key_counts.part,
}
