"""The stores in the memory of the process."""

from __future__ import annotations

from ..case import NANOSECONDS, RATE, Case, Lengths, Part, ours, peer

ABOUT = "Checks in the memory of the process, one thread on one core unless it says otherwise. Nothing is denied."


def python(kind: str, title: str, peers: list[str]) -> Case:
    keys = 10_000 if kind == "log" else 1_000
    arguments = {"mode": "sync", "kind": kind, "keys": keys, "url": "memory://"}
    return Case(
        f"Python, {title}",
        RATE,
        f"{keys:,} keys.",
        (ours("tidegate", "python", **arguments), *[peer(name, "python", **arguments) for name in peers]),
        servers=(),
        overview=kind == "gcra",
    )


def rust(threads: int, keys: int) -> Case:
    arguments = {"mode": "memory", "threads": threads, "keys": keys}
    many = "one thread" if threads == 1 else f"{threads} threads"
    return Case(
        f"Rust, GCRA, {many}, {keys:,} keys",
        NANOSECONDS,
        "Wall time of all checks over their number" + (", on two cores." if threads > 1 else "."),
        (ours("tidegate", "rust", **arguments), peer("governor", "rust", **arguments)),
        servers=(),
        both_cores=threads > 1,
    )


def part(_lengths: Lengths) -> Part:
    node = {"mode": "in-flight", "kind": "fixed", "in_flight": 1, "keys": 1_000, "url": "memory://"}
    return Part(
        "memory",
        "Memory",
        ABOUT,
        (
            python("fixed", "fixed window", ["limits", "throttled-py"]),
            python("gcra", "GCRA", ["throttled-py", "pyrate-limiter"]),
            python("log", "exact log", ["limits", "pyrate-limiter"]),
            Case(
                "Node, fixed window",
                RATE,
                "1,000 keys; each check is awaited before the next.",
                (
                    ours("tidegate", "node", **node),
                    peer("rate-limiter-flexible", "node", **node),
                    peer("express-rate-limit", "node", **node),
                ),
                servers=(),
            ),
            *[rust(threads, keys) for threads in (1, 8) for keys in (1_000, 1_000_000)],
        ),
    )
