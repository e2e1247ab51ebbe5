"""What the web layers have in common: a layer has a limiter, and options for all limits that say nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from .._tidegate import AsyncLimiter, Limiter, Policy
from ..errors import ConfigError
from .guard import Guard
from .keys import Face, Key
from .options import Rule

T = TypeVar("T")
L = TypeVar("L", Limiter, AsyncLimiter)
A = TypeVar("A")
Limited = TypeVar("Limited", bound=Any)


def choose_limiter(kind: type[T], limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> T:
    """The limiter that was given, else one of the options that a limiter has."""
    if limiter is None:
        make: Any = kind
        made: T = make(store, **options)
        return made
    if store is not None or options:
        names = ", ".join((["store"] if store is not None else []) + sorted(options))
        raise ConfigError(f"a limiter was given, and {names} as well: a limiter has them already")
    if isinstance(limiter, kind):
        return limiter
    other: Any = limiter.to_async() if isinstance(limiter, Limiter) else limiter.to_blocking()
    if not isinstance(other, kind):
        raise ConfigError(f"limiter is a Limiter or an AsyncLimiter, not {limiter!r}")
    return other


class Layer(Generic[L]):
    """A limiter, and how the requests of a framework are asked for."""

    # The limiter that its framework can wait for, and how its requests are read.
    _kind: ClassVar[type[Any]]
    _face: ClassVar[Face]

    limiter: L

    def _begin(
        self, limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any], **shared: Any
    ) -> None:
        self._make: Callable[[], L] = functools.partial(choose_limiter, self._kind, limiter, store, options)
        self.limiter = self._make()
        # What somebody gave is theirs to close.
        self._owns = limiter is None
        self._options = shared

    def _guard(self, rule: Rule) -> Guard:
        """The rule made ready."""
        return Guard(rule, self.limiter, self._face)


class Around(Layer[L], Generic[L, A]):
    """Stands around an application: one limit for all of its requests."""

    def __init__(
        self,
        app: A,
        policy: str | Policy | Sequence[Any],
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        key: Key | Callable[..., Any] | None = None,
        cost: int | Callable[..., Any] = 1,
        skip: Callable[..., Any] | None = None,
        on_denied: Callable[..., Any] | None = None,
        headers: str = "both",
        refund_when: Callable[..., Any] | None = None,
        settle: Callable[..., Any] | None = None,
        methods: Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        shared: dict[str, Any] = {
            "key": key,
            "cost": cost,
            "skip": skip,
            "on_denied": on_denied,
            "headers": headers,
            "refund_when": refund_when,
            "settle": settle,
            "methods": methods,
        }
        rule = Rule(policy, **shared)
        self._begin(limiter, store, options, **shared)
        self.app = app
        self._guards = (self._guard(rule),)


class Within(Layer[L], Generic[L, A]):
    """Knows the views of an application: each may have limits of its own."""

    def __init__(
        self,
        app: A | None = None,
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        default: str | Policy | Sequence[Any] | None = None,
        key: Key | Callable[..., Any] | None = None,
        cost: int | Callable[..., Any] = 1,
        skip: Callable[..., Any] | None = None,
        on_denied: Callable[..., Any] | None = None,
        headers: str = "both",
        refund_when: Callable[..., Any] | None = None,
        settle: Callable[..., Any] | None = None,
        methods: Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        self._begin(
            limiter,
            store,
            options,
            key=key,
            cost=cost,
            skip=skip,
            on_denied=on_denied,
            headers=headers,
            refund_when=refund_when,
            settle=settle,
            methods=methods,
        )
        self._default = () if default is None else (self._guard(Rule(default, **self._options)),)
        self._apps: list[A] = []
        # The guards of a place: known when it is first asked for.
        self._known: dict[Any, Any] = {}
        if app is not None:
            self.init_app(app)

    def init_app(self, app: A) -> None:
        """Limits an application from now on."""
        raise NotImplementedError

    def limit(self, policy: str | Policy | Sequence[Any], **options: Any) -> Callable[[Limited], Limited]:
        """A decorator that limits; it stands below `@app.get(…)`. The options are those of Tidegate."""
        if callable(policy):
            raise ConfigError('write @tg.limit("5/minute"): @tg.limit alone has no policy')
        rule = Rule(policy, **{**self._options, **options})

        def mark(view: Limited) -> Limited:
            self._check_order(view, "limit")
            rule.scope = rule.scope or self._name(view)
            # A policy that makes no sense is told here, not at the first request.
            marked: Limited = self._marked(view, self._guard(rule))
            return marked

        return mark

    def exempt(self, view: Limited) -> Limited:
        """A decorator for what nothing of this Tidegate limits."""
        self._check_order(view, "exempt")
        marked: Limited = self._marked(view, None)
        return marked

    def _check_order(self, view: Any, decorator: str) -> None:
        """Raises when the decorator stands where it can do nothing."""
        raise NotImplementedError

    def _name(self, view: Any) -> str:
        """The name that a limit written in place is known by: the same in every process."""
        raise NotImplementedError

    def _marked(self, view: Any, guard: Guard | None) -> Any:
        """The view with a limit more; None is exempt."""
        raise NotImplementedError
