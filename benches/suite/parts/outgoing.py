"""Outgoing calls: the rate of a client with a limiter, as a share of the rate without one."""

from __future__ import annotations

from ..case import REQUESTS, Case, Lengths, Part, floor, ours, peer

ABOUT = (
    "A client on one core calls a server of Node on the other, which answers at once with a few bytes. The limit is in "
    "the memory of the client and never reached, so that nothing waits. Every client is started anew for each round."
)


def client(title: str, program: str, how: str, rival: str, lengths: Lengths, **arguments: object) -> Case:
    if not lengths.quick:
        # Clients take longer than a loop of checks until they are compiled.
        arguments |= {"warm": 3, "seconds": 3}
    return Case(
        title,
        REQUESTS,
        how,
        (
            floor("bare", program, **arguments),
            ours("tidegate", program, **arguments),
            peer(rival, program, **arguments),
        ),
        reference="tidegate",
        share_of="bare",
        servers=(),
    )


def part(lengths: Lengths) -> Part:
    return Part(
        "outgoing",
        "Calls that go out",
        ABOUT,
        (
            client("fetch", "fetch", "16 calls are in flight.", "bottleneck", lengths, in_flight=16),
            client("httpx", "httpx", "A `Client` makes one call after the other.", "pyrate-limiter", lengths),
        ),
    )
