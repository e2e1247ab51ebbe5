"""The cost of a check when there are many keys."""

from __future__ import annotations

from ..case import NANOSECONDS, SERVER_CPU, Case, Lengths, Part, ours, peer
from .memory import APART

POLICY = "fixed-window 1000000/day"
ABOUT = "The same checks with few keys and with many, which exist before and are asked in an order that is not theirs."


def part(lengths: Lengths) -> Part:
    few, many = 1_000, lengths.keys(5_000_000)
    redis = {"mode": "redis", "policy": POLICY, "fold": 256, "in_flight": 256}
    fill = {"mode": "fill", "policy": POLICY, "fold": 256, "in_flight": 256}
    memory = {"mode": "memory", "threads": 1}
    contenders = tuple(ours(f"{keys:,} keys", "rust", keys=keys, **redis) for keys in (few, many))
    rounds = min(lengths.rounds, 3)
    return Part(
        "keys",
        "Many keys",
        ABOUT,
        (
            Case(
                "Redis",
                SERVER_CPU,
                f"`{POLICY}`, 256 in flight; the server holds {many:,} keys during all rounds.",
                contenders,
                server_cpu=True,
                prepare=(ours("fill", "rust", keys=many, **fill),),
            ),
            Case(
                "memory, few keys and many",
                NANOSECONDS,
                "GCRA, one thread.",
                tuple(
                    ours(f"{keys:,} keys", "rust", contender="tidegate", keys=keys, **memory) for keys in (few, many)
                ),
                servers=(),
                rounds=rounds,
            ),
            Case(
                f"memory, {many:,} keys",
                NANOSECONDS,
                "GCRA, one thread.",
                (ours("tidegate", "rust", keys=many, **memory), peer("governor", "rust", keys=many, **memory)),
                servers=(),
                rounds=rounds,
                reason=APART,
            ),
        ),
    )
