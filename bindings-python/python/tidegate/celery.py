"""Limits for Celery tasks: `pip install tidegate[celery]`.

    from tidegate.celery import limited

    @app.task
    @limited(limiter, "20/s", key=lambda user, *args: user)
    def send_mail(user, text): ...

The limit is checked before the task runs. A refused task goes back to its queue as the same message with a countdown,
so no worker sleeps. Its id, arguments, headers, links, group, chord and `request.retries` stay. A "concurrency" limit
is held while the task runs. It is given back when the task ends or fails, and within its ttl if the process was killed.
"""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from celery import Task
from celery._state import get_current_task
from celery.exceptions import Ignore, Reject

from ._decorator import Asking, CostOption, Decorator, PriorityOption, check_options, name_of
from ._jobs import JobLength
from ._queueing import holds_units
from ._shown import shown
from ._tidegate import AsyncLimiter, Decision, Limiter, Policy
from ._tracing import TRACED, asked, to_blocking, unwrapped
from .errors import ConfigError, RateLimited

__all__ = ["limited"]

Function = TypeVar("Function", bound=Callable[..., Any])
# A policy, or a function that makes it from the arguments of a task. None means no limit.
PolicyOption: TypeAlias = "str | Policy | Callable[..., str | Policy | None]"

# Why a policy that queues calls itself is refused.
_QUEUE = "tasks wait in their own queue"
# The field of a message with the turn of a task that went back.
_FIELD = "tidegate"


def limited(
    limiter: Limiter | AsyncLimiter,
    policy: PolicyOption,
    *,
    key: str | Callable[..., str] | None = None,
    cost: CostOption = None,
    priority: PriorityOption = None,
    prefix: str = "job:",
    max_wait: float = 600.0,
    on_wait: Callable[[Decision, float], object] | None = None,
) -> Decorator:
    """Limits a task. Put it below `@app.task`, also with `bind=True`. Functions get the arguments without the task.

    - `policy`: a name, a notation, a Policy, or a function of the arguments that returns one of these, or None for no
      limit.
    - `key`: a function of the arguments, or a text. The default is the name of the task. `prefix` stands before it.
      Tasks with the same policy and key share one limit.
    - `cost`: units, or a function of the arguments. The default is 1.
    - `priority`: a class of the policy's `priorities`, or a function of the arguments that returns one.
    - `max_wait`: the longest countdown in seconds. A task that waits longer goes back more than once. The Redis
      transport gives a message to another worker after its `visibility_timeout` (an hour by default), which must be
      longer.
    - `on_wait`: called when a task goes back, with the Decision and the seconds.

    A task that can never be admitted fails with RateLimited. So does a refused task that no worker runs: a call of the
    function, and `apply` or `task_always_eager`.
    """
    limiter = to_blocking(unwrapped(limiter))
    if not (isinstance(policy, (str, Policy)) or callable(policy)):
        raise TypeError(f"a policy must be a str, a Policy or a function of the arguments, not {shown(policy)}")
    if not (key is None or isinstance(key, str) or callable(key)):
        raise TypeError(f"key must be a function of the arguments or a text, not {shown(key)}")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a str, not {shown(prefix)}")
    if isinstance(max_wait, bool) or not isinstance(max_wait, (int, float)) or not 0 < max_wait < float("inf"):
        raise ConfigError(f"max_wait is {shown(max_wait)}: it must be a number of seconds above 0")
    if on_wait is not None and not callable(on_wait):
        raise TypeError(f"on_wait must be a function of a Decision and seconds, not {shown(on_wait)}")
    if not callable(policy):
        checked = check_options(limiter, policy, "" if key is None else key, cost, priority)
        holds_units(checked, _QUEUE)

    def decorate(function: Function, /) -> Function:
        if isinstance(function, Task):
            raise TypeError(f"put @limited below @app.task: it limits the function of {function.name}, not the task")
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"@limited must stand above a function, not {shown(function)}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                "@limited must stand above a function that is not async, because Celery runs no async functions: "
                f"{name_of(function)} is async"
            )
        asking = Asking(limiter, "", function, "" if key is None else key, cost, priority)
        limits = _Limits(limiter, policy, key is not None, asking, prefix, max_wait, on_wait)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = args[1:] if args and isinstance(args[0], Task) else args
            task = _task_of(wrapper)
            name = f"{function.__module__}.{name_of(function)}" if task is None else str(task.name)
            return limits.run(task, name, given, kwargs, lambda: function(*args, **kwargs))

        # Celery reads the arguments of a task from here, and does not follow __wrapped__ for that.
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        if not callable(policy):
            # As long as the task exists, `reload` refuses to drop its policy.
            wrapper._tidegate_policy_use = limiter._use_policy(policy, f"@limited on {name_of(function)}")  # type: ignore[attr-defined]
        return cast(Function, wrapper)

    return decorate


@dataclass(eq=False)
class _Limits:
    """Checks the limit of one `@limited` before its task runs."""

    _limiter: Limiter
    _policy: PolicyOption
    _has_key: bool
    _asking: Asking
    _prefix: str
    _max_wait: float
    _on_wait: Callable[[Decision, float], object] | None
    _length: JobLength = field(default_factory=JobLength)

    def run(self, task: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], work: Callable[[], Any]) -> Any:
        """Runs the work of a task, or puts the task back. Without a task it raises RateLimited for a refusal."""
        given = self._policy(*args, **kwargs) if callable(self._policy) else self._policy
        if given is None:
            return work()
        held = holds_units(self._limiter.policy(given), _QUEUE)
        made, cost = self._asking.key_and_cost(args, kwargs)
        key = self._prefix + (made if self._has_key else name)
        priority = self._asking.class_of(args, kwargs)
        limiter: Any = asked(self._limiter) if TRACED else self._limiter
        if held:
            try:
                hold = limiter.hold(given, key, cost, priority=priority)
            except RateLimited as refused:
                self._refuse(task, refused.decision)
                raise
            with hold:
                began = time.monotonic()
                try:
                    return work()
                finally:
                    self._length.add(time.monotonic() - began)
        decision = limiter.check(given, key, cost, priority=priority)
        if not decision:
            self._refuse(task, decision)
            raise RateLimited(decision)
        return work()

    def _refuse(self, task: Any, decision: Decision) -> None:
        """Puts a task back and raises Ignore. Returns if the task cannot go back."""
        never = decision.retry_after is None and not decision.unavailable
        if task is None or never:
            return
        request = task.request
        field: Any = (request.headers or {}).get(_FIELD)
        # A retry of the task has been in no line yet.
        came_back = isinstance(field, dict) and field.get("retries") == request.retries
        turn = float(field.get("turn", 0.0)) if came_back else 0.0
        now = time.time()
        if turn - now > max(decision.retry_after or 0.0, 0.05):
            # It went back only for `max_wait`, and its turn is still to come.
            wait = turn - now
        else:
            wait = self._limiter._job_wait(decision, came_back, self._length.mean)
        countdown = wait if wait <= self._max_wait else self._max_wait * random.uniform(0.5, 1)
        # Called before the task goes back. If it raises, the task fails, and must not run again later.
        if self._on_wait is not None:
            self._on_wait(decision, wait)
        _put_back(task, countdown, {"turn": now + wait, "retries": request.retries})
        raise Ignore


def _task_of(wrapper: Any) -> Any:
    """Returns the task that a worker runs now, if the wrapper is its function."""
    task = get_current_task()
    if task is None or task.request.called_directly or task.request.is_eager:
        return None
    function = task.run
    while function is not None:
        if function is wrapper:
            return task
        function = getattr(function, "__func__", None) or getattr(function, "__wrapped__", None)
    return None


def _put_back(task: Any, countdown: float, field: dict[str, Any]) -> None:
    """Sends the message of a task again. Unlike `Task.retry`, this does not count as a retry."""
    request = task.request
    again = task.signature_from_request(
        request, countdown=countdown, retries=request.retries, headers={**(request.headers or {}), _FIELD: field}
    )
    try:
        again.apply_async(add_to_parent=False, ignore_result=bool(request.ignore_result))
    except Exception as error:
        if task.acks_late:
            # The broker still has the message, and delivers it again.
            raise Reject(error, requeue=True) from error
        raise
