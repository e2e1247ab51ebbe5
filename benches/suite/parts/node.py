"""Node on Redis."""

from __future__ import annotations

from ..case import RATE, Case, Lengths, Part, ours, peer

PEERS = [
    "rate-limiter-flexible",
    "rate-limit-redis",
    "ioredis evalsha",
    "ioredis evalsha, auto-pipelining",
]
ABOUT = (
    "A fixed window of a limit that is never reached, 1,000 keys. rate-limit-redis is the store of express-rate-limit. "
    "`ioredis evalsha` is a script of one counter, as you would write it by hand. It also runs with "
    "`enableAutoPipelining`."
)


def in_flight(count: int) -> Case:
    arguments = {"mode": "in-flight", "kind": "fixed", "in_flight": count, "keys": 1_000}
    alone = " Client and server share a core." if count == 1 else " Client and server have a core each."
    return Case(
        f"{count} in flight",
        RATE,
        f"{count} callers, each of which awaits one check at a time.{alone}",
        (ours("tidegate", "node", **arguments), *[peer(name, "node", **arguments) for name in PEERS]),
        one_core=count == 1,
        reason="Redis spends 2 µs more on our script than on one of a counter; the client spends the same."
        if count == 1
        else "",
        overview=count in (64, 256),
    )


def part(_lengths: Lengths) -> Part:
    return Part("node", "Node on Redis", ABOUT, tuple(in_flight(count) for count in (1, 16, 64, 256)))
