"""Python on Redis: blocking and awaited."""

from __future__ import annotations

from ..case import RATE, Case, Contender, Lengths, Part, floor, ours, peer

ABOUT = (
    "A fixed window of a limit that is never reached, 100 keys. redis-py reads with hiredis, also under limits and "
    "throttled-py. `redis-py evalsha` is what one would write by hand: a script of one counter."
)


def sync(names: list[str], kind: str, threads: int) -> list[Contender]:
    arguments = {"mode": "sync", "kind": kind, "threads": threads, "keys": 1_000 if kind == "log" else 100}
    return [(ours if name == "tidegate" else peer)(name, "python", **arguments) for name in names]


def awaited(tasks: int, lengths: Lengths) -> Case:
    names = ["tidegate", "limits", "throttled-py", "redis-py evalsha"]
    arguments = {"mode": "async", "kind": "fixed", "tasks": tasks, "keys": 100}
    contenders = [(ours if name == "tidegate" else peer)(name, "python", **arguments) for name in names]
    requests = (20_000 if tasks == 1 else 200_000) // (10 if lengths.quick else 1)
    least = floor(f"redis-benchmark, pipeline of {tasks}", "floor", pipeline=tasks, requests=requests)
    alone = " Client and server share a core." if tasks == 1 else ""
    return Case(
        f"asyncio, {tasks} in flight",
        RATE,
        f"{tasks} tasks, each of which awaits one check at a time, on one loop.{alone}",
        (*contenders, least),
        one_core=tasks == 1,
        overview=tasks == 64,
    )


def part(lengths: Lengths) -> Part:
    fixed = ["tidegate", "limits", "throttled-py", "redis-py evalsha"]
    requests = 2_000 if lengths.quick else 20_000
    return Part(
        "python",
        "Python on Redis",
        ABOUT,
        (
            Case(
                "sync, 1 thread, one core",
                RATE,
                "One thread calls; client and server share a core.",
                (
                    *sync(fixed, "fixed", 1),
                    floor("redis-benchmark, 1 connection", "floor", pipeline=1, requests=requests),
                ),
                one_core=True,
                overview=True,
            ),
            Case(
                "sync, 1 thread, one core, GCRA",
                RATE,
                "As above, with the algorithm GCRA where the peer has it.",
                tuple(sync(["tidegate", "throttled-py", "pyrate-limiter"], "gcra", 1)),
                one_core=True,
            ),
            Case(
                "sync, 1 thread, one core, exact log",
                RATE,
                "As above, with a log of every call: `sliding-log 1000/minute`, 1,000 keys.",
                tuple(sync(["tidegate", "limits", "pyrate-limiter"], "log", 1)),
                one_core=True,
            ),
            Case(
                "sync, 8 threads",
                RATE,
                "Eight threads of one process share a limiter; client and server have a core each.",
                tuple(sync(fixed, "fixed", 8)),
                overview=True,
            ),
            *[awaited(tasks, lengths) for tasks in (1, 16, 64, 256)],
        ),
    )
