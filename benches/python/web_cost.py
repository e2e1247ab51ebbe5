"""What a limit adds to a request, without a server around the application: CPU time of the thread, the least of many
short rounds taken in turns. It is steady also where `web.py` is not, on a machine that does other work.

    python benches/python/web_cost.py [--store memory|redis]

A server's own work per request comes on top of both sides, so that the share kept behind a server is larger.
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
sys.path[:0] = [str(HERE.parents[1] / "tests" / place) for place in ("python", "servers")]

from web_apps import fastapi_app, flask_app

from client import Servers
from web import acall, call_wsgi

ROUNDS, EACH = 300, 20
WHICH = ["bare", "tidegate"]


def least(turns: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Microseconds per request, the least of all rounds."""
    found = dict.fromkeys(turns, float("inf"))
    for _ in range(ROUNDS):
        for name, turn in turns.items():
            began = time.thread_time()
            turn()
            found[name] = min(found[name], (time.thread_time() - began) / EACH * 1e6)
    return found


def flask_costs(store: str) -> dict[str, float]:
    def turn(app: Any) -> Callable[[], None]:
        def requests() -> None:
            for _ in range(EACH):
                call_wsgi(app)

        return requests

    return least({which: turn(flask_app(which, store)) for which in WHICH})


def fastapi_costs(store: str) -> dict[str, float]:
    with asyncio.Runner() as runner:

        def turn(app: Any) -> Callable[[], None]:
            async def requests() -> None:
                for _ in range(EACH):
                    await acall(app)

            return lambda: runner.run(requests())

        return least({which: turn(fastapi_app(which, store)) for which in WHICH})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=["memory", "redis"], default="memory")
    options = parser.parse_args()
    with Servers("single") as redis:
        store = redis.url if options.store == "redis" else "memory://"
        for name, costs in (("flask", flask_costs(store)), ("fastapi", fastapi_costs(store))):
            bare, limited = costs["bare"], costs["tidegate"]
            print(f"{name:8} {options.store}: {bare:.1f} µs bare, {limited:.1f} µs limited, {bare / limited:.2f} kept")


if __name__ == "__main__":
    main()
