"""Web services: their rate with a limiter, as a share of the rate without one."""

from __future__ import annotations

from ..case import REQUESTS, Case, Lengths, Part, floor, ours, peer

ABOUT = (
    "One worker has a core for itself. The load and Redis share the other core. Each connection is kept alive and "
    "sends the next request when it has a response. The limits are fixed windows that are never reached, with their "
    "headers. Every service is started anew for each round."
)


def service(framework: str, title: str, limits: int, peers: list[str], lengths: Lengths) -> Case:
    connections = 64 if framework == "express" else 16
    arguments: dict[str, object] = {"framework": framework, "limits": limits, "connections": connections}
    if not lengths.quick:
        # Services take longer than a loop of checks until they are compiled and all connections are in use.
        arguments |= {"warm": 1, "seconds": 1}
    one = "one limit" if limits == 1 else "two limits"
    contenders = [ours("tidegate", "http", **arguments)]
    if limits == 2:
        # A second policy, and functions for the key and the cost, are more work for a layer than one notation.
        more = ("tidegate, memory", "two policies", "functions")
        contenders += [ours(name, "http", **arguments) for name in more]
    contenders += [peer(name, "http", **arguments) for name in peers]
    return Case(
        f"{title}, {one}",
        REQUESTS,
        f"{connections} connections.",
        (floor("bare", "http", **arguments), *contenders),
        reference="tidegate",
        share_of="bare",
        rounds=2 if lengths.quick else 7,
        overview=limits == 2,
    )


def part(lengths: Lengths) -> Part:
    express = ["rate-limiter-flexible", "express-rate-limit"]
    return Part(
        "http",
        "Web services on Redis",
        ABOUT,
        (
            service("flask", "Flask", 2, ["flask-limiter"], lengths),
            service("fastapi", "FastAPI", 2, ["slowapi"], lengths),
            service("express", "Express", 2, express, lengths),
            service("express", "Express", 1, express, lengths),
        ),
    )
