"""Traffic as services have it: keys that callers share, and many policies."""

from __future__ import annotations

from ..case import RATE, SERVER_CPU, Case, Contender, Lengths, Part, ours, peer

IN_FLIGHT = 256
MIXED = "gcra,sliding-window,fixed-window,token-bucket,sliding-counter,calendar-window,leaky-bucket,sliding-log"
SPREADS = {
    "keys of each caller's own": ("own", 10_240),
    "random of 10,000": ("random", 10_000),
    "random of 1,000": ("random", 1_000),
    "random of 100": ("random", 100),
    "Zipf of 10,000": ("zipf", 10_000),
    "one key": ("random", 1),
}
ABOUT = (
    f"{IN_FLIGHT} callers of one process, each of which awaits one check at a time, and limits that are never reached. "
    "With Zipf the nth key is asked for 1/n times as often as the first. Several policies are asked for at random, and "
    "no two have the same limit. A peer has as many limits, each a fixed window, the cheapest that it has."
)


def traffic(
    name: str, program: str, spread: str = "zipf", keys: int = 10_000, policies: int = 1, **more: object
) -> Contender:
    arguments = {"mode": "traffic", "spread": spread, "keys": keys, "policies": policies, "tasks": IN_FLIGHT, **more}
    return (ours if more.get("contender", name) == "tidegate" else peer)(name, program, **arguments)


def spreads(algorithm: str) -> Case:
    contenders = [
        traffic(name, "rust", spread, keys, algorithms=algorithm, contender="tidegate")
        for name, (spread, keys) in SPREADS.items()
    ]
    how = f"One policy of `{algorithm}`, asked for keys that callers share. Only the first row's callers share none."
    return Case(f"shared keys, {algorithm}", SERVER_CPU, how, tuple(contenders), server_cpu=True)


def policies(name: str, algorithms: str) -> Case:
    one = [
        traffic(f"{algorithm} alone", "rust", "random", algorithms=algorithm, contender="tidegate")
        for algorithm in algorithms.split(",")
    ]
    # As many keys in the store as with one policy: keys of a bucket that is empty at once live for half a second.
    shared = {"algorithms": algorithms, "contender": "tidegate"}
    many = [traffic(f"{count} policies", "rust", "random", 10_000 // count, count, **shared) for count in (16, 64)]
    how = (
        "Keys at random, 10,000 pairs of policy and key in each row. The policies are asked together, and one of each "
        "algorithm alone."
    )
    return Case(f"many policies, {name}", SERVER_CPU, how, (*one, *many), server_cpu=True)


def beside_peers(language: str, program: str, names: list[str], count: int) -> Case:
    limits = "one policy" if count == 1 else f"{count} policies"
    contenders = [traffic(name, program, policies=count, algorithms="sliding-window") for name in ["tidegate", *names]]
    how = f"Keys by Zipf of 10,000, {limits}: ours are sliding windows, which no peer here has."
    return Case(f"{language}, {limits}", RATE, how, tuple(contenders), calls=True, overview=True)


def part(_lengths: Lengths) -> Part:
    rows: list[tuple[str, str, list[str]]] = [
        ("Python", "python", ["limits", "redis-py evalsha"]),
        ("Node", "node", ["rate-limiter-flexible", "ioredis evalsha, auto-pipelining"]),
        ("Rust", "rust", []),
    ]
    return Part(
        "traffic",
        "Traffic as services have it",
        ABOUT,
        (
            *[beside_peers(*row, count) for row in rows for count in (1, 16, 64)],
            *[spreads(algorithm) for algorithm in ("gcra", "sliding-window")],
            policies("sliding windows", "sliding-window"),
            policies("GCRA", "gcra"),
            policies("eight algorithms", MIXED),
        ),
    )
