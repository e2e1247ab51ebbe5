"""The arrangements of servers that a test can start."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Any, Callable, NamedTuple
from urllib.parse import quote

from .errors import HarnessError
from .pgbouncer import PgBouncer
from .ports import BUS_OFFSET
from .postgres import PostgresServer
from .server import CONTROL_USER, Server, Shared

READY_WITHIN = 120.0  # seconds for servers to find each other. A sentinel pauses for 30 if the machine stood still
SLOTS = 16_384
PRIMARIES = 3


class Topology(NamedTuple):
    """The URLs of servers that answer. `url` is the usual one."""

    url: str
    urls: dict[str, Any]


def single(shared: Shared, servers: list[Server]) -> Topology:
    """One server."""
    _start(servers, Server(shared, 0, "primary"))
    return _addresses(shared, servers[0])


def replica(shared: Shared, servers: list[Server]) -> Topology:
    """A primary and the replicas that follow it."""
    _start_replicated(shared, servers, shared.options.replicas)
    topology = _addresses(shared, servers[0])
    replicas = [_addresses(shared, server).url for server in servers[1:]]
    return topology._replace(urls={**topology.urls, "primary": topology.url, "replicas": replicas})


def sentinel(shared: Shared, servers: list[Server]) -> Topology:
    """A primary, two replicas, and three sentinels that agree on them."""
    if shared.certificates is not None:
        raise HarnessError("sentinels with TLS are not supported: they would announce the plain ports")
    name = shared.options.master_name
    _start_replicated(shared, servers, 2)
    settings = [
        f"sentinel monitor {name} 127.0.0.1 {servers[0].port} 2",
        f"sentinel auth-user {name} {CONTROL_USER}",
        f"sentinel auth-pass {name} {shared.control_password}",
        f"sentinel down-after-milliseconds {name} {shared.options.down_after_ms}",
        f"sentinel failover-timeout {name} {max(3_000, 3 * shared.options.down_after_ms)}",
    ]
    sentinels = [Server(shared, len(servers) + i, "sentinel", settings) for i in range(3)]
    _start(servers, *sentinels)
    for server in sentinels:
        _shorten_periods(server)
    _wait("the sentinels agree", lambda: all(_agrees(server, name) for server in sentinels))
    url = f"redis+sentinel://{_credentials(shared)}{_hosts(sentinels)}/{name}/0"
    return Topology(url, {"sentinel": url, "primary": _addresses(shared, servers[0]).url})


def cluster(shared: Shared, servers: list[Server]) -> Topology:
    """Three primaries that share the slots, and a replica of each."""
    settings = [
        "cluster-enabled yes",
        f"cluster-node-timeout {shared.options.down_after_ms}",
        # A replica may take over even after a long disconnection, because tests stop servers for a long time.
        "cluster-replica-validity-factor 0",
    ]
    roles = ["primary"] * PRIMARIES + ["replica"] * PRIMARIES
    _start(servers, *(Server(shared, i, role, settings) for i, role in enumerate(roles)))
    primaries, replicas = servers[:PRIMARIES], servers[PRIMARIES:]
    for i, server in enumerate(primaries):
        server.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        slots = range(i * SLOTS // PRIMARIES, (i + 1) * SLOTS // PRIMARIES)
        server.command("CLUSTER", "ADDSLOTS", *slots)
    _introduce(servers)
    for server, its_primary in zip(replicas, primaries):
        identity = its_primary.command("CLUSTER", "MYID")
        _wait("a replica knows its primary", partial(_replicates, server, identity))
    _wait("the cluster is whole", lambda: all(_whole(server) for server in servers))
    _wait("the replicas follow", partial(_follow, primaries, replicas))
    scheme = "rediss+cluster" if shared.certificates is not None else "redis+cluster"
    url = f"{scheme}://{_credentials(shared)}{_hosts(primaries)}"
    return Topology(url, {"cluster": url})


def postgres(shared: Shared, servers: list[Any]) -> Topology:
    """One PostgreSQL server."""
    _start(servers, PostgresServer(shared, 0))
    url: str = servers[0].url
    return Topology(url, {"tcp": url})


def standby(shared: Shared, servers: list[Any]) -> Topology:
    """A PostgreSQL server, and a standby that follows it."""
    _start(servers, PostgresServer(shared, 0))
    _start(servers, PostgresServer(shared, 1, servers[0]))
    both = f"{servers[0].url.rpartition('/')[0]},127.0.0.1:{servers[1].port}/{servers[0].database}"
    return Topology(both, {"primary": servers[0].url, "standby": servers[1].url})


def pgbouncer(shared: Shared, servers: list[Any]) -> Topology:
    """A PostgreSQL server behind PgBouncer in transaction mode."""
    _start(servers, PostgresServer(shared, 0))
    _start(servers, PgBouncer(shared, 1, servers[0]))
    url: str = servers[1].url
    return Topology(url, {"tcp": url, "primary": servers[0].url})


KINDS: dict[str, Callable[[Shared, list[Any]], Topology]] = {
    "single": single,
    "replica": replica,
    "sentinel": sentinel,
    "cluster": cluster,
    "postgres": postgres,
    "standby": standby,
    "pgbouncer": pgbouncer,
}


def _start(servers: list[Any], *new: Server | PostgresServer | PgBouncer) -> None:
    # Added to the list before they start, so that the harness kills them whatever fails from here on.
    servers.extend(new)
    for server in new:
        server.launch()
    for server in new:
        server.wait_ready()


def _start_replicated(shared: Shared, servers: list[Server], replicas: int) -> None:
    _start(servers, Server(shared, 0, "primary"))
    settings = [f"replicaof 127.0.0.1 {servers[0].port}"]
    _start(servers, *(Server(shared, 1 + i, "replica", settings) for i in range(replicas)))
    _wait("the replicas follow", partial(_follow, servers[:1], servers[1:]))


def _follow(primaries: list[Server], replicas: list[Server]) -> bool:
    # Asks both sides, because a replica that has read the snapshot reports it before its primary knows.
    online = sum(server.command("INFO", "replication").count("state=online") for server in primaries)
    return online == len(replicas) and all(_follows(server) for server in replicas)


def _follows(server: Server) -> bool:
    return "master_link_status:up" in server.command("INFO", "replication")


def _shorten_periods(server: Server) -> None:
    # Sentinels find each other by messages every two seconds, and examine servers every one to ten seconds. Older
    # sentinels have no such command. With them the start only takes longer.
    with contextlib.suppress(HarnessError):
        server.command("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 200, "INFO-PERIOD", 200, "PING-PERIOD", 200)


def _agrees(server: Server, name: str) -> bool:
    flat = server.command("SENTINEL", "MASTER", name)
    state = dict(zip(flat[::2], flat[1::2]))
    return (state["flags"], state["num-slaves"], state["num-other-sentinels"]) == ("master", "2", "2")


def _introduce(servers: list[Server]) -> None:
    # Introduces every node to every other one, because the gossip would take seconds.
    for server in servers:
        for peer in servers:
            if peer is not server:
                port = peer.tls_port or peer.port
                server.command("CLUSTER", "MEET", "127.0.0.1", port, port + BUS_OFFSET)


def _replicates(server: Server, identity: str) -> bool:
    try:
        return bool(server.command("CLUSTER", "REPLICATE", identity) == "OK")
    except HarnessError:
        return False  # it has not met that node yet


def _whole(server: Server) -> bool:
    info = server.command("CLUSTER", "INFO")
    nodes = server.command("CLUSTER", "NODES")
    return (
        "cluster_state:ok" in info
        and f"cluster_known_nodes:{2 * PRIMARIES}" in info
        and nodes.count("slave") == PRIMARIES
        and "handshake" not in nodes
        and "fail" not in nodes
    )


def _wait(what: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not reached():
        if time.monotonic() > deadline:
            raise HarnessError(f"waited {READY_WITHIN:.0f} s in vain until {what}")
        time.sleep(0.02)


def _addresses(shared: Shared, server: Server) -> Topology:
    credentials = _credentials(shared)
    urls = {
        "tcp": f"redis://{credentials}127.0.0.1:{server.port}/0",
        "unix": f"redis+unix://{credentials}{server.socket}",
    }
    if server.tls_port is not None:
        urls["tls"] = f"rediss://{credentials}127.0.0.1:{server.tls_port}/0"
    return Topology(urls.get("tls", urls["tcp"]), urls)


def _credentials(shared: Shared) -> str:
    password = shared.options.password
    return f":{quote(password, safe='')}@" if password else ""


def _hosts(servers: list[Server]) -> str:
    return ",".join(f"127.0.0.1:{server.tls_port or server.port}" for server in servers)
