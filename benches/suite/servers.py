"""The Redis servers of a case: on free ports, pinned to a core, and ended with this process however it ends."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "servers"))

from client import Servers

from .case import Case
from .programs import cores

# The commands that run a limiter's script.
CALLS = re.compile(r"cmdstat_(?:evalsha|eval|evalsha_ro|fcall|fcall_ro):calls=(\d+)")


class SharedFile:
    """The file of a store without a server. It lies in memory if the system has a place for that."""

    servers: tuple[dict[str, int], ...] = ()

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(prefix="tidegate-bench-", dir=memory if memory.is_dir() else None)
        self.url = f"file://{self.folder}/limits"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def started(kind: str) -> SharedFile | Servers:
    if kind == "file":
        return SharedFile()
    # Servers of tests write nothing to the disk at a commit.
    return Servers(kind, config={"fsync": "on"}) if kind == "postgres" else Servers(kind)


class CaseServers:
    """The servers of one case, with their CPU time and their calls."""

    def __init__(self, case: Case) -> None:
        self.kinds = {kind: started(kind) for kind in case.servers}
        self.urls = {kind: servers.url for kind, servers in self.kinds.items()}
        # Web applications have the servers' core for themselves.
        web = any(contender.program == "http" for contender in case.contenders)
        core = cores()[0 if case.one_core or web else 1]
        for servers in self.kinds.values():
            for server in servers.servers:
                for thread in os.listdir(f"/proc/{server['pid']}/task"):
                    os.sched_setaffinity(int(thread), {core})

    def __enter__(self) -> CaseServers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for servers in self.kinds.values():
            servers.close()

    def cpu(self, kind: str) -> float:
        """The CPU seconds of the primaries' main threads. Replicas do not count: a single server can have them, too."""
        servers = self.kinds[kind].servers[: 3 if kind == "cluster" else 1]
        return sum(int(Path(f"/proc/{server['pid']}/schedstat").read_text().split()[0]) for server in servers) / 1e9

    def calls(self, kind: str) -> int:
        """The number of scripts that the primaries have run."""
        servers = self.kinds[kind]
        if isinstance(servers, SharedFile) or kind == "postgres":
            return 0
        count = 3 if kind == "cluster" else 1
        found = [str(servers.command("INFO", "commandstats", server=number)) for number in range(count)]
        return sum(int(calls) for text in found for calls in CALLS.findall(text))
