"""Limits of the handlers of frameworks with a server of their own, on an event loop."""

from __future__ import annotations

import functools
from typing import Any, Generic, TypeVar

from .._tidegate import AsyncLimiter
from ..errors import StoreError
from .admission import Admission, admit
from .functions import is_async, qualified_name, verb_of, with_wrapped
from .keys import UnusableKey
from .layers import LIMITS, RouteLimits, unattached
from .limit import BoundLimit, DeclaredLimit
from .refusal import Refusal
from .steps import awaited, run_steps_async

A = TypeVar("A")


class HandlerLimits(RouteLimits[AsyncLimiter, A], Generic[A]):
    """Limits of the handlers of an application. A notation counts for its handler."""

    _limiter_class = AsyncLimiter
    # The functions that a decorator has replaced. A route that has one of them was registered without its limit.
    _replaced: tuple[Any, ...] = ()

    async def _close(self, app: A) -> None:
        """Closes a limiter that this layer has made when the last of its applications ends."""
        self._apps.remove(app)
        if self._owns_limiter and not self._apps:
            await self.limiter.close()

    def _verify(self, handler: Any) -> None:
        """Raises for the handler of a route that a decorator limits above that route."""
        if any(handler is one for one in self._replaced):
            raise self._above_route(qualified_name(handler), "limit")

    def _is_attached(self, arguments: tuple[Any, ...]) -> bool:
        """True if a handler with these arguments serves no request, or a request that this layer has checked."""
        raise NotImplementedError

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        def check(arguments: tuple[Any, ...]) -> None:
            if not self._is_attached(arguments):
                raise unattached(qualified_name(view))

        limited = view
        if is_async(view):

            @functools.wraps(view)
            async def limited(*args: Any, **kwargs: Any) -> Any:
                check(args)
                return await view(*args, **kwargs)

        elif not isinstance(view, type):

            @functools.wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                check(args)
                return view(*args, **kwargs)

        self._replaced = self._replaced if limited is view else (*self._replaced, view)
        # A limit of None exempts the handler.
        setattr(limited, LIMITS, [(self, declared), *getattr(view, LIMITS, ())])
        return limited

    def _limits_of(self, route: Any, handler: Any, view_class: Any, path: str, method: str) -> tuple[BoundLimit, ...]:
        """Returns the limits of a route. Those of a class may differ by the method."""
        key = route, method if view_class else None
        known = self._limits_by_route.get(key)
        if known is None:
            own: dict[DeclaredLimit | None, str] = {}
            for view in (handler, view_class, getattr(view_class, verb_of(view_class, method), None)):
                for one in with_wrapped(view):
                    for owner, declared in getattr(one, LIMITS, ()):
                        if owner is self:
                            own.setdefault(declared, _place(view, path))
            known = () if None in own else self._limits_of_view(_place(handler, path), own.items())  # type: ignore[arg-type]
            self._remember(*key, known)
        return known

    async def _admit(self, request: Any, limits: tuple[BoundLimit, ...]) -> Admission | Refusal | None:
        """Checks a request. Returns a Refusal for one that cannot be checked, and None if no limit applies."""
        try:
            return await run_steps_async(admit(limits, request, request.method), self.limiter) if limits else None
        except (StoreError, UnusableKey) as error:
            return Refusal(error)

    async def _given(self, request: Any, admission: Admission) -> Any:
        """Returns the answer of `on_denied` to a denied request, or None for the default."""
        on_denied = admission.bound.on_denied
        if on_denied is None:
            return None
        return await run_steps_async(awaited(on_denied(request, admission.decision)), self.limiter)


def _place(view: Any, path: str) -> str:
    """Returns the name under which a notation counts. Inner functions may share a name, so their path is part of it."""
    name = qualified_name(view)
    return f"{name} {path}" if "<" in name else name
