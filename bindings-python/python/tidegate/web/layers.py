"""The two kinds of layers: one limits a whole application, the other each of its routes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .._shown import shown
from .._tidegate import AsyncLimiter, Limiter, PolicyUse
from .._tracing import to_async, to_blocking, unwrapped
from ..errors import ConfigError
from .bound_limit import APPLICATION, BoundLimit
from .declared_limit import DeclaredLimit, PolicyOption, enabled_layer, enabled_option
from .functions import name_of, with_arity
from .keys import RequestAdapter
from .options import INHERITED_OPTIONS, LIMIT_OPTIONS, LIMITER_OPTIONS, LayerOptions, LimitOptions, check_names

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
    limiter = unwrapped(limiter)
    if isinstance(limiter, kind):
        return limiter
    if not isinstance(limiter, (Limiter, AsyncLimiter)):
        raise ConfigError(f"limiter is a Limiter or an AsyncLimiter, not {shown(limiter)}")
    other: Any = to_async(limiter) if isinstance(limiter, Limiter) else to_blocking(limiter)
    converted: T = other
    return converted


class WebLayer(Generic[L]):
    """A limiter, and the defaults of its limits."""

    # Set by each framework: the kind of limiter that it can wait for, and what reads its requests.
    _limiter_class: ClassVar[type[Any]]
    _adapter: ClassVar[RequestAdapter]
    # Whether options may be async functions. Where they may not, they are an error where they are written.
    _awaits: ClassVar[bool] = True
    # The options that are not those of limits and limiters.
    _own_options: ClassVar[tuple[str, ...]] = ("limiter", "store")

    limiter: L
    # False: the layer does nothing at all.
    enabled: bool

    def _configure(self, limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> None:
        """Takes the options of limits as defaults, and makes the limiter from the others."""
        check_names(options, (*self._own_options, *LIMIT_OPTIONS, *LIMITER_OPTIONS), type(self).__name__)
        self._enabled_option = enabled_option(options.pop("enabled", None))
        self.enabled = enabled_layer(self._enabled_option)
        skip = options.pop("skip", None)
        # It applies to each limit, beside the limit's own.
        self._skip = None if skip is None else with_arity(skip, 1, "skip")
        self._defaults = {name: options.pop(name) for name in INHERITED_OPTIONS if name in options}
        # What is wrong with a default is an error here, where it is written.
        DeclaredLimit("1/s", **self._defaults)
        self._make: Callable[[], L] = functools.partial(choose_limiter, self._limiter_class, limiter, store, options)
        self.limiter = self._make()
        self._generation = self.limiter._generation
        self._uses: list[PolicyUse] = []
        # The layer closes a limiter that it has made, and leaves open one that was given.
        self._owns_limiter = limiter is None

    def _declare(self, policy: PolicyOption, options: Any = None) -> DeclaredLimit:
        """A limit with these options; those that are missing are the layer's."""
        declared = DeclaredLimit(policy, **{**self._defaults, **(options or {})})
        if declared.async_option is not None and not self._awaits:
            raise ConfigError(f"{declared.async_option} is async: this framework calls it on a thread")
        return declared

    def _bind(self, declared: DeclaredLimit, place: str = "") -> BoundLimit:
        """The limit, prepared for the layer's limiter and framework, and for the place where it counts."""
        return BoundLimit(declared, self.limiter, self._adapter, place, self._skip)

    def _refresh(self) -> None:
        """Binds the limits anew when a reload may have changed what their policies are."""
        generation = self.limiter._generation
        if generation != self._generation:
            self._bind_anew()
            self._generation = generation

    def _bind_anew(self) -> None:
        raise NotImplementedError


class AppLimits(WebLayer[L], Generic[L, A]):
    """One limit for all requests of an application."""

    def __init__(
        self,
        app: A,
        policy: PolicyOption,
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._configure(limiter, store, dict(options))
        self.app = app
        self._declared = self._declare(policy)
        self._bind_anew()

    def _bind_anew(self) -> None:
        self._limits = (self._bind(self._declared, APPLICATION),)


class LimitDecorator:
    """What `tg.limit(…)` returns: it limits a view."""

    def __init__(self, policy: PolicyOption, decorate: Callable[[Any], Any]) -> None:
        self._policy = policy
        self._decorate = decorate

    def __call__(self, *view: Any, **more: Any) -> Any:
        if len(view) != 1 or more:
            raise ConfigError(self._used_as_view())
        return self._decorate(view[0])

    def __getattr__(self, name: str) -> Any:
        # Frameworks read the name of what they register as a view.
        if name == "__name__" and callable(self._policy):
            raise ConfigError(self._used_as_view())
        raise AttributeError(name)

    def _used_as_view(self) -> str:
        name = name_of(self._policy) if callable(self._policy) else repr(self._policy)
        return (
            f"limit({name}) is a decorator, and it stands where a view belongs: a limit alone has no policy, "
            'write @tg.limit("5/minute") above a view'
        )


class RouteLimits(WebLayer[L], Generic[L, A]):
    """Limits of the routes of an application: each may have its own, and all others have the default."""

    _own_options = ("limiter", "store", "default", "application")

    def __init__(
        self,
        app: A | None = None,
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        default: PolicyOption | None = None,
        application: PolicyOption | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._configure(limiter, store, dict(options))
        self._declare_shared(default, application)
        self._apps: list[A] = []
        # The limits of each route, found with its first request.
        self._limits_by_route: dict[Any, Any] = {}
        if app is not None:
            self.init_app(app)

    def _declare_shared(self, default: PolicyOption | None, application: PolicyOption | None) -> None:
        """Declares the limits that are not written at a view."""
        self._default = None if default is None else self._declare(default)
        if self._default is not None:
            # It raises for a policy that is wrong.
            self._uses += self._bind(self._default).uses
        # One budget for all views, whatever their methods are.
        self._declared_application = None if application is None else self._declare(application, {"per_method": False})
        self._bind_application()

    def _bind_application(self) -> None:
        declared = self._declared_application
        self._application = () if declared is None else (self._bind(declared, APPLICATION),)

    def _bind_anew(self) -> None:
        self._bind_application()
        self._limits_by_route.clear()

    def _limits_of_view(
        self, place: str, own: Iterable[tuple[DeclaredLimit, str]] = (), *, use_default: bool = True
    ) -> tuple[BoundLimit, ...]:
        """The limits of a view: its own, each with its place, or else the default; and the application's."""
        limits: list[BoundLimit] = [self._bind(declared, where) for declared, where in own if declared.enabled]
        if not limits and use_default and self._default is not None:
            limits = [self._bind(self._default, place)]
        return (*limits, *self._application)

    def init_app(self, app: A) -> None:
        """Limits an application from now on."""
        raise NotImplementedError

    def limit(self, policy: PolicyOption, **options: Unpack[LimitOptions]) -> Callable[[Limited], Limited]:
        """A decorator that limits a view; it stands below `@app.get(…)`. Missing options are those of this Tidegate."""
        declared = self._declare(policy, options)
        # Binding raises for a policy that is wrong: here, and not with the first request.
        self._bind(declared)

        def decorate(view: Limited) -> Limited:
            self._check_decorator_order(view, "limit")
            # A reload refuses to drop these policies from now on, not only once they are bound.
            by = f"the limit of {name_of(view)}"
            self._uses += [self.limiter._use_policy(use[0], by) for use in declared.policies]
            limited: Limited = self._with_limit(view, declared)
            return limited

        return LimitDecorator(policy, decorate)

    def exempt(self, view: Limited) -> Limited:
        """A decorator for a view that no limit of this Tidegate applies to."""
        self._check_decorator_order(view, "exempt")
        exempted: Limited = self._with_limit(view, None)
        return exempted

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        """Raises when the decorator stands where it has no effect."""
        raise NotImplementedError

    def _with_limit(self, view: Any, declared: DeclaredLimit | None) -> Any:
        """The view with one more limit; None exempts it."""
        raise NotImplementedError
