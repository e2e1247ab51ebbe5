"""One hot key with a lease."""

from __future__ import annotations

from ..case import RATE, Case, Contender, Lengths, Part, ours

POLICY = "fixed-window 10000000/10s"
# Less than the limit of the window, so that nothing is denied.
MOST = 8_000_000
ABOUT = (
    f"One key of `{POLICY}`, with `lease: 5%` and without; no peer has leases that keep the limit. Redis has a core of "
    "its own; Rust's two threads use both cores. `Redis calls per 100` decisions counts the warm-up, too."
)


def case(name: str, how: str, program: str, both_cores: bool = False, **arguments: object) -> Case:
    def contender(shown: str, kind: str) -> Contender:
        return ours(shown, program, contender="tidegate", kind=kind, **arguments)

    return Case(
        name,
        RATE,
        how,
        (contender("lease 5%", "lease"), contender("no lease", "no lease")),
        both_cores=both_cores,
        calls=True,
        overview=name == "Python, one thread",
    )


def part(_lengths: Lengths) -> Part:
    rust = {"mode": "lease", "policy": POLICY, "threads": 2, "most": MOST}
    return Part(
        "leases",
        "Leases",
        ABOUT,
        (
            case("Python, one thread", "Each check follows the one before.", "python", mode="sync", keys=1, most=MOST),
            case(
                "Python, asyncio",
                "64 tasks, each of which awaits one check at a time.",
                "python",
                mode="async",
                keys=1,
                tasks=64,
                most=MOST,
            ),
            case(
                "Node",
                "Each check is awaited before the next.",
                "node",
                mode="in-flight",
                keys=1,
                in_flight=1,
                most=MOST,
            ),
            Case(
                "Rust, two threads",
                RATE,
                "Blocking calls of two threads.",
                (
                    ours("lease 5%", "rust", lease="5%", **rust),
                    ours("no lease", "rust", lease="none", **rust),
                ),
                both_cores=True,
                calls=True,
            ),
        ),
    )
