"""The processes of one machine, without a server: a file that they share."""

from __future__ import annotations

from ..case import NANOSECONDS, RATE, Case, Lengths, Part, floor, ours, peer

ABOUT = (
    "A file in memory (`file:///dev/shm/…`) that every process of the machine maps. A limiter in memory is a floor: "
    "each process would count for itself."
)
FILE, REDIS = {"contender": "tidegate", "servers": "file"}, {"contender": "tidegate", "servers": "single"}
MEMORY = {"contender": "tidegate", "url": "memory://"}


def alone(ask: str, title: str) -> Case:
    arguments = {"mode": "memory", "threads": 1, "keys": 10_000, "ask": ask}
    return Case(
        f"Rust, {title}",
        NANOSECONDS,
        "GCRA, 10,000 keys, one thread on one core.",
        (
            ours("tidegate, file", "rust", **arguments, **FILE),
            floor("tidegate, memory", "rust", **arguments, **MEMORY),
        ),
        servers=("file",),
        overview=ask == "check",
    )


def part(_lengths: Lengths) -> Part:
    python = {"mode": "sync", "kind": "fixed", "keys": 1_000}
    four = {"mode": "sync", "kind": "fixed", "keys": 1_000, "processes": 4}
    rust = {"mode": "memory", "threads": 1, "keys": 10_000, "processes": 4, "as": "rate"}
    one_by_one = {"mode": "redis", "policy": "gcra 1/s burst 1000000000", "fold": 1, "keys": 10_000, "in_flight": 1}
    workers = {"mode": "cluster", "workers": 2, "kind": "fixed", "keys": 1_000, "in_flight": 1}
    return Part(
        "machine",
        "The processes of one machine",
        ABOUT,
        (
            alone("check", "a check"),
            alone("denial", "a denial"),
            alone("peek", "a peek"),
            Case(
                "Python, one process",
                RATE,
                "A fixed window, 1,000 keys, one thread on one core.",
                (
                    ours("tidegate, file", "python", **python, **FILE),
                    peer("limits, memory", "python", **python, contender="limits", url="memory://"),
                    floor("tidegate, memory", "python", **python, **MEMORY),
                ),
                servers=("file",),
            ),
            Case(
                "Rust, four processes",
                RATE,
                "GCRA, 10,000 keys that all of them use, on two cores. On Redis each has one check in flight.",
                (
                    ours("tidegate, file", "rust", **rust, **FILE),
                    peer("tidegate, local Redis", "rust", **one_by_one, processes=4, **REDIS),
                ),
                servers=("file", "single"),
                both_cores=True,
            ),
            Case(
                "Python, four processes",
                RATE,
                "A fixed window, 1,000 keys that all of them use, on two cores.",
                (
                    ours("tidegate, file", "python", **four, **FILE),
                    peer("tidegate, local Redis", "python", **four, **REDIS),
                    peer("limits, local Redis", "python", **four, contender="limits", servers="single"),
                ),
                servers=("file", "single"),
                both_cores=True,
                overview=True,
            ),
            Case(
                "Node, two workers of a cluster",
                RATE,
                "A fixed window, 1,000 keys that both use, on two cores; each check is awaited before the next.",
                (
                    ours("tidegate, file", "node", **workers, **FILE),
                    peer(
                        "express-rate-limit, cluster store",
                        "node",
                        **workers,
                        contender="express-rate-limit, cluster store",
                        url="none",
                    ),
                    peer("tidegate, local Redis", "node", **workers, **REDIS),
                ),
                servers=("file", "single"),
                both_cores=True,
                overview=True,
            ),
        ),
    )
