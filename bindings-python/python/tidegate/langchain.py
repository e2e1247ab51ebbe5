"""Limits for the models of LangChain: `pip install tidegate[langchain]`.

    from tidegate import Limiter
    from tidegate.langchain import RateLimiter

    limiter = Limiter("redis://127.0.0.1:6379/0")
    model = ChatOpenAI(model="…", rate_limiter=RateLimiter(limiter, "500/minute"))

Each call of the model waits for its turn. All processes that share the store share the budget.
"""

from __future__ import annotations

from typing import Any

from langchain_core.rate_limiters import BaseRateLimiter

from ._decorator import Asking, CostOption, KeyOption, PriorityOption, check_options
from ._never_fits import never_fits
from ._paced_options import checked_seconds
from ._queueing import holds_units
from ._tidegate import AsyncLimiter, Decision, Limiter, Policy
from ._tracing import TRACED, asked, to_async, to_blocking, unwrapped
from .errors import ConfigError, RateLimited
from .web.processes import warn_of_memory

__all__ = ["RateLimiter"]


class RateLimiter(BaseRateLimiter):
    """The `rate_limiter` of a model. Threads, event loops and models may share one.

    - `policy`: a name, a notation or a Policy.
    - `key`: a text, or a function that returns one, such as the user of the running request. The default is one key
      for all calls.
    - `cost`: units, or a function that returns them. LangChain gives no information about the call. The default is 1.
    - `priority`: a class of the policy's `priorities`, or a function that returns one.
    - `timeout`: the longest wait in seconds. A call that would wait longer raises RateLimited at once. None waits as
      long as it takes.
    """

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        policy: str | Policy,
        *,
        key: KeyOption = "langchain",
        cost: CostOption = None,
        priority: PriorityOption = None,
        timeout: float | None = 30.0,
    ) -> None:
        limiter = unwrapped(limiter)
        if holds_units(check_options(limiter, policy, key, cost, priority), "a model waits for its turn itself"):
            raise ConfigError("LangChain does not tell when a call has ended, so a rate_limiter holds no units")
        self._limiter, self._async_limiter = to_blocking(limiter), to_async(limiter)
        self._policy, self._asking = policy, Asking(limiter, policy, type(self), key, cost, priority)
        self._timeout = None if timeout is None else checked_seconds(timeout, "timeout", "a number of seconds")
        self._use = limiter._use_policy(policy, "a RateLimiter of LangChain")
        warn_of_memory(limiter)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Waits for the turn of a call. With `blocking=False` it returns at once if the call may go on."""
        return _admitted(self._ask(self._limiter, blocking), blocking)

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Does the same on an event loop."""
        return _admitted(await self._ask(self._async_limiter, blocking), blocking)

    def _ask(self, limiter: Any, blocking: bool) -> Any:
        called = asked(limiter) if TRACED else limiter
        key, cost = self._asking.key_and_cost((), {})
        priority = self._asking.class_of((), {})
        if blocking:
            return called.acquire(self._policy, key, cost, self._timeout, priority=priority)
        return called.check(self._policy, key, cost, priority=priority)


def _admitted(decision: Decision, blocking: bool) -> bool:
    if blocking and not decision:
        raise never_fits(decision) or RateLimited(decision)
    return bool(decision)
