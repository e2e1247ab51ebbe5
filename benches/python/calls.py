"""Outgoing calls with httpx: one process is one round of one contender, against a server on another core.

Its arguments are `name=value`: contender, core (of the server), warm, seconds. It prints one line of JSON as every
contender does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

SERVER = Path(__file__).resolve().parent.parent / "node" / "hello-server.mjs"
# No round makes so many calls in an hour, so no call waits.
MANY = 1_000_000_000


def bare() -> httpx.Client:
    return httpx.Client()


def tidegate() -> httpx.Client:
    from tidegate import Limiter
    from tidegate.httpx import PacedTransport

    return httpx.Client(transport=PacedTransport(Limiter(), policy=f"{MANY}/hour"))


def pyrate_limiter() -> httpx.Client:
    from pyrate_limiter import Duration, Limiter, Rate
    from pyrate_limiter.extras.httpx_limiter import RateLimiterTransport

    return httpx.Client(transport=RateLimiterTransport(Limiter(Rate(MANY, Duration.HOUR))))


CONTENDERS: dict[str, Callable[[], httpx.Client]] = {
    "bare": bare,
    "tidegate": tidegate,
    "pyrate-limiter": pyrate_limiter,
}


def calls(client: httpx.Client, url: str, seconds: float) -> int:
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        client.get(url)
        done += 1
    return done


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    pipe = subprocess.PIPE
    with subprocess.Popen(["taskset", "-c", given["core"], "node", str(SERVER)], stdin=pipe, stdout=pipe) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        with CONTENDERS[given["contender"]]() as client:
            before = calls(client, url, float(given["warm"]))
            began, cpu = time.perf_counter(), time.process_time()
            done = calls(client, url, float(given["seconds"]))
            took, spent = time.perf_counter() - began, time.process_time() - cpu
        # The end of its input ends the server.
        server.communicate()
    beside = {"client CPU, µs": spent * 1e6 / done}
    print(json.dumps({"value": done / took, "decisions": before + done, "beside": beside}))


if __name__ == "__main__":
    main()
