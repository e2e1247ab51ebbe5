"""Rate limits with one Rust core: nine algorithms, in memory or shared through Redis.

    from tidegate import Limiter

    limiter = Limiter(policies={"login": "20/minute; 5/3s"})
    decision = limiter.check("login", "alice")
    if not decision:
        print(f"try again in {decision.retry_after} s")

`AsyncLimiter` has the same calls for asyncio. `ManualClock` is a clock for tests.
"""

import atexit
import os
import sys

from ._tidegate import (
    AsyncHold,
    AsyncLimiter,
    Attempt,
    Decision,
    Hold,
    Limit,
    Limiter,
    LimitState,
    ManualClock,
    NearLimit,
    Override,
    Policy,
    Rollout,
    StoreChange,
    Warning,
    __version__,
    after_fork_in_child,
    before_exit,
    lint,
    rollout,
)
from .errors import ClosedError, ConfigError, CostError, KeyInvalid, PolicyError, RateLimited, StoreError, TidegateError

# A constant that type checkers know. Importing `typing` would take longer than the rest of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._decorator import Decorator
    from ._hold import Holding
else:

    def __getattr__(name):
        if name not in ("Decorator", "Holding"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Loaded on first use, because they import `inspect` and `typing`.
        from . import _decorator, _hold

        return _decorator.Decorator if name == "Decorator" else _hold.Holding


__all__ = [
    "AsyncHold",
    "AsyncLimiter",
    "Attempt",
    "ClosedError",
    "ConfigError",
    "CostError",
    "Decision",
    "Decorator",
    "Hold",
    "Holding",
    "KeyInvalid",
    "Limit",
    "LimitState",
    "Limiter",
    "ManualClock",
    "NearLimit",
    "Override",
    "Policy",
    "PolicyError",
    "RateLimited",
    "Rollout",
    "StoreChange",
    "StoreError",
    "TidegateError",
    "Warning",
    "__version__",
    "lint",
    "rollout",
]

# Threads and connections do not survive a fork. In the child, a limiter that was made before it starts new ones.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork_in_child)

# Python 3.14 and later let daemon threads sleep at exit.
if sys.version_info < (3, 14):
    atexit.register(before_exit)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
