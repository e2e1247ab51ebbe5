"""One hot key that is being denied."""

from __future__ import annotations

from ..case import RATE, Case, Lengths, Part, ours, peer

ABOUT = (
    "One key that has used up `fixed-window 5/hour` asks again and again. Redis has a core for itself. "
    "rate-limiter-flexible is shown in both ways: with its defaults, and with `inMemoryBlockOnConsumed`."
)


def part(_lengths: Lengths) -> Part:
    sync = {"mode": "sync", "kind": "denied", "keys": 1}
    awaited = {"mode": "async", "kind": "denied", "keys": 1, "tasks": 64}
    node = {"mode": "in-flight", "kind": "denied", "keys": 1}
    names = ["rate-limiter-flexible", "rate-limiter-flexible, in-memory block"]
    return Part(
        "denied",
        "A denied hot key",
        ABOUT,
        (
            Case(
                "Python, one thread",
                RATE,
                "Each check waits for the one before.",
                (
                    ours("tidegate", "python", **sync),
                    peer("limits", "python", **sync),
                    peer("throttled-py", "python", **sync),
                ),
                calls=True,
            ),
            Case(
                "Python, asyncio, 64 in flight",
                RATE,
                "64 tasks, each of which awaits one check at a time.",
                (
                    ours("tidegate", "python", **awaited),
                    peer("limits", "python", **awaited),
                    peer("throttled-py", "python", **awaited),
                ),
                calls=True,
            ),
            *[
                Case(
                    f"Node, {count} in flight",
                    RATE,
                    "Each caller awaits one check at a time; a denial that is a rejected promise is caught.",
                    (
                        ours("tidegate", "node", in_flight=count, **node),
                        *[peer(name, "node", in_flight=count, **node) for name in names],
                    ),
                    calls=True,
                )
                for count in (1, 64)
            ],
        ),
    )
