"""Cold starts: the time that an import adds to a process, and the first call of many processes."""

from __future__ import annotations

from ..case import MILLISECONDS, Case, Lengths, Part, floor, ours, peer

PROCESSES = 50
ABOUT = (
    "Fresh processes whose files are in the memory of the machine. A machine with other work takes a multiple of these "
    "times, and the same of the peers."
)


def imports(language: str, title: str, how: str, peers: list[str], lengths: Lengths) -> Case:
    arguments = {"language": language, "runs": 2 if lengths.quick else 7}
    return Case(
        title,
        MILLISECONDS,
        f"{how} The time of the process, less that of one that does nothing.",
        (ours("tidegate", "start", **arguments), *[peer(name, "start", **arguments) for name in peers]),
        servers=(),
        both_cores=True,
    )


def part(lengths: Lengths) -> Part:
    node = ["rate-limiter-flexible", "express-rate-limit"]
    first = {"callers": 5 if lengths.quick else PROCESSES, "waves": 1 if lengths.quick else 2}
    return Part(
        "start",
        "Cold starts",
        ABOUT,
        (
            imports("python", "Python", "`import`.", ["limits", "throttled-py", "pyrate-limiter"], lengths),
            imports("node", "Node", "`require`.", node, lengths),
            imports("esm", "Node, modules", "`import`.", node, lengths),
            Case(
                f"the first check of {PROCESSES} processes at once",
                MILLISECONDS,
                "Processes of Python that have imported and wait for one moment. Then each connects and checks once. "
                "The server knows no script. The 99th percentile of what each process sees. `PING` is a client that "
                "connects and asks for no more.",
                (ours("tidegate", "first", **first), peer("limits", "first", **first), floor("PING", "first", **first)),
            ),
        ),
    )
