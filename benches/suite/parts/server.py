"""The cost of a decision on the server."""

from __future__ import annotations

from ..case import SERVER_CPU, Case, Contender, Lengths, Part, floor, ours, peer
from ..environment import server_version

IN_FLIGHT = 256
ONE = {"GCRA": "gcra 1000000/s", "fixed window": "fixed-window 1000000/s"}
THREE = "gcra 1000000/s; fixed-window 1000000/hour; token-bucket 1000000/minute"
WINDOWS = "1000000/s; 1000000/minute; 1000000/hour"
ALONE = (
    "Its script is a counter. Beside the flat script, called with the same bytes each time, ours spends 0.3 µs on "
    "the length of its instruction, 0.2 on reading it and 0.1 on the registers of all that it can do."
)
ABOUT = (
    "CPU time of Redis's main thread (/proc/PID/schedstat) over the number of decisions, 10,000 keys, of which no two "
    "callers ask for one at the same time, client and server on a core each. The peers' scripts travel in pipelines of "
    "256, the cheapest way for the server that they "
    "have. rate-limiter-flexible's script is one fixed window."
)


def limiter(name: str, policy: str, fold: int, **more: object) -> Contender:
    arguments = {"mode": "redis", "policy": policy, "fold": fold, "in_flight": IN_FLIGHT, "keys": 10_000}
    return ours(name, "rust", **arguments, **more)


def has_increx(version: str) -> bool:
    """True if this version of Redis has the command INCREX."""
    numbers = version.split(".")
    return all(number.isdigit() for number in numbers[:2]) and tuple(map(int, numbers[:2])) >= (8, 8)


def scripts(version: str) -> tuple[Contender, ...]:
    arguments = {"mode": "pipelined", "in_flight": IN_FLIGHT, "keys": 10_000}
    floors = [
        "bare INCR script, pipelined",
        "flat GCRA script, pipelined",
        *(["INCREX, pipelined"] if has_increx(version) else []),
    ]
    return (
        peer("rate-limiter-flexible, pipelined", "node", **arguments),
        *(floor(name, "node", **arguments) for name in floors),
    )


def part(_lengths: Lengths) -> Part:
    version = server_version("Redis")

    def case(name: str, how: str, *contenders: Contender, reason: str = "") -> Case:
        overview = name.startswith("one limit")
        return Case(name, SERVER_CPU, how, contenders, server_cpu=True, overview=overview, reason=reason)

    return Part(
        "server",
        "Server CPU",
        ABOUT,
        (
            case(
                "a check that travels alone",
                "One script call for each check, pipelined.",
                *[limiter(f"tidegate, {name}", policy, 1) for name, policy in ONE.items()],
                *scripts(version),
                reason=ALONE,
            ),
            case(
                f"one limit, {IN_FLIGHT} in flight",
                "The limiter puts waiting checks into one call.",
                *[limiter(f"tidegate, {name}", policy, IN_FLIGHT) for name, policy in ONE.items()],
                *scripts(version),
            ),
            case(
                f"three limits, {IN_FLIGHT} in flight",
                f"`{THREE}` in one step, beside a script of one limit.",
                limiter("tidegate, three limits", THREE, IN_FLIGHT),
                limiter("tidegate, one limit", ONE["GCRA"], IN_FLIGHT),
                *scripts(version),
            ),
            case(
                f"three sliding windows, {IN_FLIGHT} in flight",
                f"`{WINDOWS}` in one step, beside a script of one fixed window.",
                limiter("tidegate, three sliding windows", WINDOWS, IN_FLIGHT),
                *scripts(version),
                reason="Each check of ours asks and charges three windows, and each of the peer's one.",
            ),
            Case(
                "a cluster of three",
                SERVER_CPU,
                "The sum of the three primaries, `gcra 1000000/s`. Each has a third of the calls in flight, and looks "
                "up the slot of a key for each command.",
                (
                    limiter("single server, a call for each check", ONE["GCRA"], 1, servers="single"),
                    limiter("single server", ONE["GCRA"], IN_FLIGHT, servers="single"),
                    limiter("cluster of three", ONE["GCRA"], IN_FLIGHT, servers="cluster"),
                ),
                servers=("single", "cluster"),
                server_cpu=True,
            ),
        ),
    )
