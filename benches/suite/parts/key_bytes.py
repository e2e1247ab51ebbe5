"""The memory of a key."""

from __future__ import annotations

from ..case import BYTES, Case, Contender, Lengths, Part, ours, peer

POLICIES = [
    "gcra 100/s burst 200",
    "gcra 7/s",
    "token-bucket 1000/minute",
    "leaky-bucket 10/s",
    "fixed-window 1000/hour",
    "fixed-window 65535/hour",
    "calendar-window 10000/day",
    "sliding-counter 1000/minute",
    "sliding-window 1000/hour",
    "sliding-log 1000/minute",
    "gcra 100/s; fixed-window 1000/hour; token-bucket 100/minute",
]
ABOUT = (
    "On Redis: MEMORY USAGE of all keys that five checks of `user:1234567` leave behind. In memory: the growth of the "
    "process over its number of keys of 16 bytes."
)


def redis(title: str, policy: str, kind: str, peers: dict[str, str], checks: int = 5) -> Case:
    arguments = {"mode": "key-bytes", "checks": checks}
    return Case(
        f"Redis, {title}",
        BYTES,
        f"`{policy}`, {checks} checks.",
        (
            ours("tidegate", "rust", policy=policy, apart_us=1_234, **arguments),
            *[peer(name, program, kind=kind, **arguments) for name, program in peers.items()],
        ),
        rounds=1,
    )


def in_memory(title: str, program: str, kind: str, peers: list[str], keys: int) -> Case:
    def contender(name: str) -> Contender:
        role = ours if name == "tidegate" else peer
        return role(name, program, mode="memory-bytes", kind=kind, keys=keys, url="memory://")

    contenders = (contender("tidegate"), *[contender(name) for name in peers])
    reason = "Of a key ours keeps 88 bytes, among them its policy, and its place in a table that is half empty here."
    return Case(f"memory, {title}", BYTES, f"{keys:,} keys.", contenders, servers=(), rounds=3, reason=reason)


def part(lengths: Lengths) -> Part:
    every = [
        ours(
            "three limits" if ";" in policy else policy,
            "rust",
            mode="key-bytes",
            policy=policy,
            checks=5,
            apart_us=1_234,
        )
        for policy in POLICIES
    ]
    python = dict.fromkeys(["limits", "throttled-py"], "python")
    node = dict.fromkeys(["rate-limiter-flexible", "rate-limit-redis"], "node")
    # With few keys, most of the growth is that of the rest of the process.
    keys = 300_000 if lengths.quick else 1_000_000
    fewer = 100_000 if lengths.quick else 200_000
    return Part(
        "bytes",
        "Bytes per key",
        ABOUT,
        (
            Case(
                "Redis, every algorithm",
                BYTES,
                f"Five checks, 1,234 µs apart. Three limits are `{POLICIES[-1]}`.",
                tuple(every),
                rounds=1,
            ),
            redis("fixed window", "fixed-window 1000/hour", "hour", python | node),
            redis("GCRA", "gcra 100/s burst 200", "gcra 100/s", {"throttled-py": "python", "pyrate-limiter": "python"}),
            redis("sliding counter", "sliding-counter 1000/minute", "counter", python),
            redis("token bucket", "token-bucket 1000/minute", "token", {"throttled-py": "python"}),
            redis(
                "exact log of 100 calls",
                "sliding-log 1000/minute",
                "log",
                {"limits": "python", "pyrate-limiter": "python"},
                checks=100,
            ),
            in_memory("Rust, GCRA", "rust", "gcra", ["governor"], keys),
            in_memory("Python, fixed window", "python", "fixed", ["limits", "throttled-py"], fewer),
            in_memory("Node, fixed window", "node", "fixed", ["rate-limiter-flexible", "express-rate-limit"], fewer),
        ),
    )
