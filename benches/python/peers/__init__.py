"""The contenders in Python, a module each, so that a process loads only its own.

Each module has `check(url, kind)`, which gives a function of a key; most also `async_check`, the same to be awaited. A
kind is a policy by its name in `KINDS`; every peer has the algorithm of that policy.

Some have `async_checks(url, limits)`: a function for each limit, an algorithm and a number for each minute. A peer
counts fixed windows then, the cheapest that it has.
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
# Between rounds on one server: what a later process must not find used.
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
