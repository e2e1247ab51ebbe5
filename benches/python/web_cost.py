"""The CPU time that a limit adds to a request, without a server: the least of many short rounds, measured alternately.
Unlike `http_round.py` it is reliable on a machine that does other work.

    python benches/python/web_cost.py [--store memory|redis]

A server adds its own work to both sides, so behind a server the limit costs a smaller share.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / folder) for folder in ("python", "servers")]

from web_apps import LIMITS, fastapi_app, flask_app

from client import Servers
from web import acall, call_wsgi

ROUNDS, REQUESTS = 300, 20
WHICH = ["bare", *LIMITS]


def least_times(work: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Microseconds per request, the least of all rounds."""
    found = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, run in work.items():
            began = time.thread_time()
            run()
            found[name] = min(found[name], (time.thread_time() - began) / REQUESTS * 1e6)
    return found


def flask_costs(store: str) -> dict[str, float]:
    def requests_of(app: Any) -> Callable[[], None]:
        def requests() -> None:
            for _ in range(REQUESTS):
                call_wsgi(app)

        return requests

    return least_times({which: requests_of(flask_app(which, store)) for which in WHICH})


def fastapi_costs(store: str) -> dict[str, float]:
    with asyncio.Runner() as runner:

        def requests_of(app: Any) -> Callable[[], None]:
            async def requests() -> None:
                for _ in range(REQUESTS):
                    await acall(app)

            return lambda: runner.run(requests())

        return least_times({which: requests_of(fastapi_app(which, store)) for which in WHICH})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=["memory", "redis"], default="memory")
    options = parser.parse_args()
    with Servers("single") as redis:
        store = redis.url if options.store == "redis" else "memory://"
        for name, costs in (("flask", flask_costs(store)), ("fastapi", fastapi_costs(store))):
            bare = costs.pop("bare")
            added = ", ".join(f"{which} {limited - bare:+.1f} µs" for which, limited in costs.items())
            print(f"{name:8} {options.store}: {bare:.1f} µs bare, {added}")


if __name__ == "__main__":
    main()
