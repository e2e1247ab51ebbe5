"""The contenders in Python, one module each, so that a process loads only one of them.

Each module has `check(url, kind)`, which returns a function of a key. Most also have `async_check`, the same for
asyncio. A kind is the name of a policy in `KINDS`, and every peer uses the algorithm of that policy.

Some have `async_checks(url, limits)`, which returns a function for each limit. A limit is an algorithm and a number per
minute, but the peers count fixed windows, their cheapest algorithm.
"""

from __future__ import annotations

import importlib
from types import ModuleType

MODULES = {
    "tidegate": "tidegate_itself",
    "limits": "limits_peer",
    "throttled-py": "throttled_peer",
    "pyrate-limiter": "pyrate_peer",
    "redis-py evalsha": "redis_py_peer",
}
# No benchmark uses it up.
HIGH = 1_000_000_000
# Kinds with separate keys for each process, so that a later round on the same server finds no used ones.
FRESH = {"log"}
KINDS = {
    "fixed": f"fixed-window {HIGH}/hour",
    "hour": "fixed-window 1000/hour",
    "gcra": f"gcra {HIGH}/hour",
    "gcra 100/s": "gcra 100/s burst 200",
    "log": "sliding-log 1000/minute",
    "counter": "sliding-counter 1000/minute",
    "token": "token-bucket 1000/minute",
    "denied": "fixed-window 5/hour",
    "lease": "fixed-window 10000000/10s",
    "no lease": "fixed-window 10000000/10s",
}


def module_of(contender: str) -> ModuleType:
    return importlib.import_module(f"peers.{MODULES[contender]}")
