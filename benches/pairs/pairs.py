"""Compares two builds of Tidegate in interleaved pairs, so that a machine with a drifting speed affects both alike.

    python benches/pairs/pairs.py --before CHECKOUT --after CHECKOUT [--pairs 15] [--only memory,sync,asyncio,…]

Each checkout has its Python package in .cache/venv (`make python`) and its addon built (`npm run build`). For each path
it takes the ratio of the rates of each pair, then the median of the ratios with its 95 % interval. A path fails if its
whole interval lies below 0.97.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEAST = 0.97
TRAFFIC = [
    ("own", "own", 10_240, 1, "gcra"),
    ("random", "random", 1_000, 1, "gcra"),
    ("zipf", "zipf", 10_000, 1, "gcra"),
    ("16", "zipf", 10_000, 16, "sliding-window"),
    ("64", "zipf", 10_000, 64, "sliding-window"),
    ("mixed", "zipf", 10_000, 16, "gcra,sliding-window,fixed-window,sliding-log"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(command: list[str], core: int) -> list[str]:
    return ["taskset", "-c", str(core), *command] if shutil.which("taskset") else command


def start_server(folder: str, core: int) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    options = ["--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder]
    server = subprocess.Popen(pinned(["redis-server", *options], core), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, f"redis://127.0.0.1:{port}/0"
        time.sleep(0.05)
    server.terminate()
    raise SystemExit("redis-server does not answer")


def forget(url: str) -> None:
    """Empties the server, because a build that cannot read the keys of another one would answer without the store."""
    host, port = url.split("//")[1].split("/")[0].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        if connection.recv(16) != b"+OK\r\n":
            raise SystemExit("the server is not emptied")


def paths() -> dict[str, tuple[str, list[str], bool]]:
    """Returns for each path its language, its arguments, and True if client and server share a core."""
    found = {kind: ("python", [kind], kind == "sync") for kind in ("memory", "memory-kept", "sync")}
    for flight in (1, 16, 64, 256):
        found[f"asyncio-{flight}"] = ("python", ["asyncio", str(flight)], flight == 1)
    for flight in (1, 16, 64, 256):
        found[f"node-{flight}"] = ("node", [str(flight)], flight == 1)
    # Callers that share keys, of one policy and of many: see ../python/traffic.py.
    for name, spread, keys, policies, algorithm in TRAFFIC:
        numbers = {"spread": spread, "keys": keys, "policies": policies, "algorithms": algorithm, "tasks": 256}
        shape = [f"{word}={value}" for word, value in numbers.items()]
        found[f"traffic-{name}"] = ("traffic", shape, False)
        found[f"traffic-{name}-node"] = ("node", ["256", *shape], False)
    return found


def rate(checkout: Path, language: str, arguments: list[str], url: str) -> float:
    forget(url)
    python = str(checkout / ".cache/venv/bin/python")
    if language == "python":
        command = [python, str(HERE / "child.py"), url, *arguments]
    elif language == "traffic":
        given = ["mode=traffic", "contender=tidegate", f"url={url}", "warm=0.15", "seconds=0.5"]
        command = [python, str(HERE.parent / "python" / "contender.py"), *given, *arguments]
    else:
        command = ["node", str(HERE / "child.mjs"), str(checkout), url, *arguments]
    done = subprocess.run(pinned(command, 0), capture_output=True, text=True, check=False, cwd=checkout)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(json.loads(done.stdout)["value"] if language == "traffic" else done.stdout)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Returns the median between the bounds of its 95 % interval, which are order statistics."""
    ordered = sorted(ratios)
    count = len(ordered)
    reach = int(0.98 * count**0.5)
    low, high = max(0, count // 2 - reach), min(count - 1, count // 2 + reach)
    return ordered[low], ordered[count // 2], ordered[high]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", default="memory,sync,asyncio,node,traffic")
    options = parser.parse_args()
    wanted = options.only.split(",")
    chosen = {name: path for name, path in paths().items() if name in wanted or name.split("-")[0] in wanted}
    ratios: dict[str, list[float]] = {name: [] for name in chosen}
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    builds = (options.before.resolve(), options.after.resolve())
    with tempfile.TemporaryDirectory() as folder:
        servers = [start_server(folder, core) for core in (0, (os.cpu_count() or 1) - 1)]
        try:
            for number in range(options.pairs):
                for name, (language, arguments, shares_core) in chosen.items():
                    url = servers[0 if shares_core else 1][1]
                    # Every second pair runs in the reverse order, because the second of two may be favoured.
                    order = builds if number % 2 == 0 else builds[::-1]
                    measured = {build: rate(build, language, arguments, url) for build in order}
                    ratios[name].append(measured[builds[1]] / measured[builds[0]])
                    rates[name].append(measured[builds[1]])
                print(f"pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)
        finally:
            for server, _ in servers:
                server.terminate()
                server.wait()
    slower = []
    print(f"{'path':<19} {'after/before':>12}  {'95 % interval':<15} {'after, per second':>18}")
    for name, found in ratios.items():
        low, median, high = interval(found)
        print(f"{name:<19} {median:>12.3f}  {low:.3f} to {high:.3f} {sorted(rates[name])[len(found) // 2]:>18,.0f}")
        if high < LEAST:
            slower.append(name)
    if slower:
        print(f"slower by more than 3 %: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
