"""The two kinds of layers: one limits a whole application, the other each of its routes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .._shown import shown
from .._tidegate import AsyncLimiter, Limiter, Policy
from ..errors import ConfigError
from .bound_limit import BoundLimit
from .declared_limit import DeclaredLimit
from .keys import RequestAdapter
from .options import LIMIT_OPTIONS, LayerOptions, LimitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
L = TypeVar("L", Limiter, AsyncLimiter)
A = TypeVar("A")
Limited = TypeVar("Limited", bound=Any)


def choose_limiter(kind: type[T], limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> T:
    """Returns the given limiter, as the kind that the framework needs, or makes one from the options."""
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
        raise ConfigError(f"limiter is a Limiter or an AsyncLimiter, not {shown(limiter)}")
    return other


class WebLayer(Generic[L]):
    """A limiter, and the defaults of its limits."""

    # Set by each framework: the kind of limiter that it can wait for, and what reads its requests.
    _limiter_class: ClassVar[type[Any]]
    _adapter: ClassVar[RequestAdapter]

    limiter: L

    def _configure(self, limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> None:
        """Takes the options of limits as defaults, and makes the limiter from the others."""
        self._defaults = {name: options.pop(name) for name in LIMIT_OPTIONS if name in options}
        self._make: Callable[[], L] = functools.partial(choose_limiter, self._limiter_class, limiter, store, options)
        self.limiter = self._make()
        # The layer closes a limiter that it has made, and leaves open one that was given.
        self._owns_limiter = limiter is None

    def _declare(self, policy: str | Policy | Sequence[Any], options: Any = None, scope: str = "") -> DeclaredLimit:
        """A limit with these options; those that are missing are the layer's."""
        return DeclaredLimit(policy, **{**self._defaults, "scope": scope, **(options or {})})

    def _bind(self, declared: DeclaredLimit) -> BoundLimit:
        """The limit, prepared for the layer's limiter and framework."""
        return BoundLimit(declared, self.limiter, self._adapter)


class AppLimits(WebLayer[L], Generic[L, A]):
    """One limit for all requests of an application."""

    def __init__(
        self,
        app: A,
        policy: str | Policy | Sequence[Any],
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._configure(limiter, store, dict(options))
        self.app = app
        self._limits = (self._bind(self._declare(policy)),)


class RouteLimits(WebLayer[L], Generic[L, A]):
    """Limits of the routes of an application: each may have its own, and all others have the default."""

    def __init__(
        self,
        app: A | None = None,
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        default: str | Policy | Sequence[Any] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._configure(limiter, store, dict(options))
        self._default = () if default is None else (self._bind(self._declare(default)),)
        self._apps: list[A] = []
        # The limits of each route, found with its first request.
        self._limits_by_route: dict[Any, Any] = {}
        if app is not None:
            self.init_app(app)

    def init_app(self, app: A) -> None:
        """Limits an application from now on."""
        raise NotImplementedError

    def limit(
        self, policy: str | Policy | Sequence[Any], **options: Unpack[LimitOptions]
    ) -> Callable[[Limited], Limited]:
        """A decorator that limits a view; it stands below `@app.get(…)`. Missing options are those of this Tidegate."""
        if callable(policy):
            raise ConfigError('write @tg.limit("5/minute"): @tg.limit alone has no policy')
        declared = self._declare(policy, options)

        def decorate(view: Limited) -> Limited:
            self._check_decorator_order(view, "limit")
            declared.scope = declared.scope or self._scope_of(view)
            # Binding raises for a policy that is wrong: here, and not with the first request.
            limited: Limited = self._with_limit(view, self._bind(declared))
            return limited

        return decorate

    def exempt(self, view: Limited) -> Limited:
        """A decorator for a view that no limit of this Tidegate applies to."""
        self._check_decorator_order(view, "exempt")
        exempted: Limited = self._with_limit(view, None)
        return exempted

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        """Raises when the decorator stands where it has no effect."""
        raise NotImplementedError

    def _scope_of(self, view: Any) -> str:
        """The name under which a notation written at this view is counted: the same in every process."""
        raise NotImplementedError

    def _with_limit(self, view: Any, bound: BoundLimit | None) -> Any:
        """The view with one more limit; None exempts it."""
        raise NotImplementedError
