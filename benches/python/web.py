"""What a limit costs a web application: requests per second with it as a share of those without, and the CPU time of
the server per request. Two limits, headers on, one worker; client and server have a core
each, and the cases are measured alternately.

    python benches/python/web.py [--seconds 2] [--rounds 5] [--store redis|memory] [--only flask|fastapi]

Needs: pip install flask gunicorn fastapi uvicorn uvloop httptools flask-limiter slowapi redis. On a machine
that does other work only the CPU times are reliable.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "servers")]

from client import Servers

REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
CONNECTIONS = 16
TICK = os.sysconf("SC_CLK_TCK")
CASES = {"flask": ["bare", "tidegate", "flask-limiter"], "fastapi": ["bare", "tidegate", "slowapi"]}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Server:
    """An application in a process of its own."""

    def __init__(self, framework: str, which: str, store: str, core: int) -> None:
        self.port = free_port()
        environ = {**os.environ, "BENCH_FRAMEWORK": framework, "BENCH_LIMITER": which, "BENCH_STORE": store}
        bind = f"127.0.0.1:{self.port}"
        if framework == "flask":
            command = [sys.executable, "-m", "gunicorn", "-w1", "-k", "gthread", "--threads", "4", "-b", bind]
            command += ["--keep-alive", "60", "--log-level", "error", "web_apps:create()"]
        else:
            command = [sys.executable, "-m", "uvicorn", "--factory", "web_apps:create", "--port", str(self.port)]
            command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
        self.process = subprocess.Popen(command, cwd=HERE, env=environ)
        os.sched_setaffinity(self.process.pid, {core})
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)
        time.sleep(0.5)

    def cpu(self) -> float:
        """Seconds of CPU time of the process and its workers."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(stat.parent.name) == self.process.pid or int(fields[1]) == self.process.pid:
                total += int(fields[11]) + int(fields[12])
        return total / TICK

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def responses_within(port: int, seconds: float) -> int:
    """The number of responses in that time. Each connection sends the next request as soon as it has a response."""
    selector = selectors.DefaultSelector()
    for _ in range(CONNECTIONS):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ, bytearray())
        one.send(REQUEST)
    responses, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(0.1):
            one, received = key.fileobj, key.data
            assert isinstance(one, socket.socket)
            received += one.recv(65536)
            head = received.find(b"\r\n\r\n")
            if head < 0:
                continue
            at = received.lower().find(b"content-length: ")
            length = int(received[at + 16 : received.find(b"\r\n", at)])
            if len(received) < head + 4 + length:
                continue
            if received[9:12] != b"200":
                raise SystemExit(f"a response is no 200: {bytes(received[:400])!r}")
            responses += 1
            received.clear()
            one.send(REQUEST)
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    return responses


def measure(framework: str, store: str, seconds: float, rounds: int, cores: tuple[int, int]) -> None:
    servers = {which: Server(framework, which, store, cores[1]) for which in CASES[framework]}
    rates: dict[str, list[float]] = {which: [] for which in servers}
    costs: dict[str, list[float]] = {which: [] for which in servers}
    try:
        for server in servers.values():
            responses_within(server.port, 0.5)
        for _ in range(rounds):
            for which, server in servers.items():
                before, began = server.cpu(), time.perf_counter()
                responses = responses_within(server.port, seconds)
                # On a machine that is too busy there may be no response at all.
                rates[which].append(max(responses, 1) / (time.perf_counter() - began))
                costs[which].append((server.cpu() - before) / max(responses, 1) * 1e6)
    finally:
        for server in servers.values():
            server.close()
    rate = {which: statistics.median(values) for which, values in rates.items()}
    cost = {which: statistics.median(values) for which, values in costs.items()}
    shares = {
        which: statistics.median(one / bare for one, bare in zip(rates[which], rates["bare"], strict=True))
        for which in rates
    }
    print(f"\n{framework}, {store.split(':')[0]}, two limits, headers on")
    print(f"{'':16}{'requests/s':>12}{'of bare':>10}{'CPU µs':>10}{'of bare':>10}")
    for which in rates:
        of_bare = cost["bare"] / cost[which]
        print(f"{which:16}{rate[which]:>12,.0f}{shares[which]:>10.2f}{cost[which]:>10.0f}{of_bare:>10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=["redis", "memory"], default="redis")
    parser.add_argument("--only", choices=sorted(CASES))
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    client, server = cores[0], cores[-1]
    with Servers("single") as redis:
        for one in redis.servers:
            os.sched_setaffinity(one["pid"], {client})
        os.sched_setaffinity(0, {client})
        store = redis.url if options.store == "redis" else "memory://"
        for framework in [options.only] if options.only else CASES:
            measure(framework, store, options.seconds, options.rounds, (client, server))


if __name__ == "__main__":
    main()
