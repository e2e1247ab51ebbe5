"""The stores in the memory of the process."""

from __future__ import annotations

from ..case import NANOSECONDS, RATE, Case, Lengths, Part, ours, peer

ABOUT = "Checks in the memory of the process, one thread on one core unless it says otherwise. Nothing is denied."


# Shares of the time of a check, by perf.
LOCKED = (
    "The lock of the shard takes 21 % of a check, the key's place 15 %, the Decision and its count 24 %, the policy by "
    "its name 13 %; governor has one limit, and answers yes or no."
)
APART = (
    "Three quarters of the time ours waits for memory: for the place of the key in its table, and for the two lines of "
    "what is stored."
)
CROSSED = (
    "Half of it is spent in Rust, on the check, its answer as numbers and the way there and back, and 30 % in V8 on "
    "calls and promises. express-rate-limit adds to a counter, and waits for nothing."
)


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
        reason=LOCKED if keys <= 1_000 else APART,
    )


def rust_call(ask: str, title: str, about: str, *, with_peer: bool = True) -> Case:
    """One call of Rust on one thread, with 1,000 keys."""
    arguments = {"mode": "memory", "threads": 1, "keys": 1_000, "ask": ask}
    contenders = [ours("tidegate", "rust", **arguments)]
    if with_peer:
        contenders.append(peer("governor", "rust", **arguments))
    how = f"1,000 keys, one thread. {about}"
    reason = (
        "A second step finds when the denial ends, which takes 9 %; the rest is that of a check."
        if ask == "denial"
        else LOCKED
    )
    return Case(f"Rust, {title}", NANOSECONDS, how, tuple(contenders), servers=(), reason=reason)


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
                reason=CROSSED,
            ),
            *[rust(threads, keys) for threads in (1, 8) for keys in (1_000, 1_000_000)],
            rust_call("allows", "GCRA, allows", "The answer says whether, how much is left and how long to wait."),
            rust_call("denial", "GCRA, a denial", "Each check but the first of a key is denied."),
            rust_call("window", "the default window", "A sliding window of a day.", with_peer=False),
        ),
    )
