"""Node on PostgreSQL."""

from __future__ import annotations

from ..case import RATE, Case, Lengths, Part, ours, peer

CALLERS = 64
ABOUT = (
    "A fixed window of a limit that is never reached, over PostgreSQL with the settings of its package. "
    "rate-limiter-flexible is called as its documentation shows, with a pool of `pg`: it counts by the clock of the "
    "client, and waits for the disk at each commit. Tidegate has its defaults: four connections, `durability=async`."
)


def case(name: str, how: str, suffix: str = "", *, callers: int = CALLERS, **arguments: object) -> Case:
    given = {"mode": "in-flight", "kind": "fixed", "in_flight": callers, **arguments}
    return Case(
        name,
        RATE,
        how,
        (
            ours(f"tidegate, Postgres{suffix}", "node", **given),
            peer(f"rate-limiter-flexible, Postgres{suffix}", "node", **given),
        ),
        servers=("postgres",),
    )


def part(_lengths: Lengths) -> Part:
    callers = CALLERS // 4
    return Part(
        "postgres",
        "Node on PostgreSQL",
        ABOUT,
        (
            case(
                "many keys", f"{CALLERS} callers, each of which awaits one check of 10,000 keys at a time.", keys=10_000
            ),
            case("one hot key", f"{CALLERS} callers of one process.", keys=1),
            case(
                "one hot key, four processes",
                f"{callers} callers in each of four processes share one key.",
                keys=1,
                key="shared",
                callers=callers,
                processes=4,
            ),
            case("one caller", "One caller awaits one check of 1,000 keys at a time.", callers=1, keys=1_000),
            case(
                "two keys at once, four processes",
                f"{callers} callers in each of four processes check one of 10,000 keys and one that all share. "
                "Tidegate charges both or none; the peer charges each by itself.",
                ", two keys",
                keys=10_000,
                callers=callers,
                processes=4,
            ),
        ),
    )
