"""The decorators of views."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from .._shown import shown
from ..errors import ConfigError
from ..web.declared_limit import PolicyOption
from ..web.functions import name_of as short_name
from ..web.options import LimitOptions
from .checking import FunctionCall
from .layer import LIMITS, ViewLimit, name_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Limited = TypeVar("Limited", bound=Any)


def limit(policy: PolicyOption, **options: Unpack[LimitOptions]) -> Callable[[Limited], Limited]:
    """A decorator for views, async views, class views and their methods, also through `method_decorator`, and for
    views, viewsets and actions of Django REST framework. It needs the middleware.

    policy: a name, a notation, a Policy, several of them, or a function of the request that returns these or None.
    The options are key, cost, skip, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method and
    enabled.

    On a function that a view calls with its request, the limit is checked there. A notation counts for its place:
    "module.view", "module.Class" or "module.Class.method". A function that a function has made has its route behind the
    name, "module.make.<locals>.view login/".
    """
    view_limit = ViewLimit(policy, options)

    def decorate(*views: Any, **more: Any) -> Any:
        if len(views) != 1 or more or isinstance(views[0], HttpRequest):
            name = short_name(policy) if callable(policy) else repr(policy)
            raise ConfigError(
                f"limit({name}) is a decorator of views, and it stands where a view belongs: a limit alone has no "
                'policy, write @limit("5/minute") above the view'
            )
        _check_decorated(views[0], "limit")
        return with_limits(views[0], [view_limit, *getattr(views[0], LIMITS, ())])

    return decorate


def exempt(view: Limited) -> Limited:
    """A decorator for views that nothing limits."""
    _check_decorated(view, "exempt")
    exempted: Limited = with_limits(view, [None])
    return exempted


def _check_decorated(view: Any, decorator: str) -> None:
    if isinstance(view, (classmethod, staticmethod, property)):
        raise ConfigError(f"put @{decorator} below @{type(view).__name__}: it is for the function itself")
    if not callable(view):
        raise ConfigError(
            f"@{decorator} is for views and class views, not for {shown(view)}: it stands above the view itself"
        )
    if inspect.isclass(view) and not hasattr(view, "dispatch") and "__call__" not in vars(view):
        raise ConfigError(
            f"@{decorator} is for class views, and {name_of(view)} is no django.views.View: "
            "put it above the function that serves requests"
        )


def with_limits(view: Any, limits: list[ViewLimit | None]) -> Any:
    """The view; it checks its limits when it runs."""
    if inspect.isclass(view):
        method = "dispatch" if hasattr(view, "dispatch") else "__call__"
        setattr(view, method, with_limits(getattr(view, method), limits))
        setattr(view, LIMITS, limits)
        return view
    if iscoroutinefunction(view) or iscoroutinefunction(type(view).__call__):

        @functools.wraps(view)
        async def limited_async(*args: Any, **kwargs: Any) -> Any:
            call = FunctionCall.of(limited_async, view, limits, args, kwargs)
            answer = None if call is None else await call.check_async()
            return await view(*args, **kwargs) if answer is None else answer

        setattr(limited_async, LIMITS, limits)
        return limited_async

    @functools.wraps(view)
    def limited(*args: Any, **kwargs: Any) -> Any:
        call = FunctionCall.of(limited, view, limits, args, kwargs)
        if call is None:
            return view(*args, **kwargs)
        if call.on_event_loop:
            return _call_async(call, view, args, kwargs)
        answer = call.check()
        if answer is None:
            answer = view(*args, **kwargs)
            call.verify(answer)
        return answer

    setattr(limited, LIMITS, limits)
    return limited


async def _call_async(call: FunctionCall, dispatch: Any, args: Any, kwargs: Any) -> Any:
    """Runs `dispatch` of a class whose methods are async: it is no coroutine function itself."""
    answer = await call.check_async()
    if answer is not None:
        return answer
    given = dispatch(*args, **kwargs)
    return await given if inspect.isawaitable(given) else given
