"""The two kinds of layers: one limits a whole application, the other each of its routes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .._shown import shown
from .._tidegate import AsyncLimiter, Limiter, PolicyUse
from .._tracing import to_async, to_blocking, unwrapped
from ..errors import ConfigError
from .functions import name_of, with_arity
from .keys import Key, RequestAdapter
from .limit import APPLICATION, BoundLimit, DeclaredLimit, PolicyOption, flag
from .options import INHERITED_OPTIONS, LIMIT_OPTIONS, LIMITER_OPTIONS, LayerOptions, LimitOptions, check_names
from .processes import warn_of_memory

if TYPE_CHECKING:
    from typing_extensions import Unpack

L = TypeVar("L", Limiter, AsyncLimiter)
A = TypeVar("A")
Limited = TypeVar("Limited", bound=Any)

# The setting and the environment variable that enable layers.
VARIABLE = "TIDEGATE_ENABLED"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

# The attribute of a view that carries its limits, a list.
LIMITS = "__tidegate__"
# The attribute of an application that carries the layer of its routes.
ATTACHED = "_tidegate"
# The most routes and methods that are remembered. A client may make up methods, but a server has few.
MAX_ROUTES = 10_000
# The most layers of middleware that are searched.
MAX_LAYERS = 32
# The longest method that is kept with its limits.
MAX_METHOD = 32


def enabled_setting(given: object, name: str) -> bool:
    """Returns the value of a setting, which may be a text."""
    if isinstance(given, (bool, int)) and given in (0, 1):
        return bool(given)
    word = _WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    if word is None:
        raise ConfigError(f"{name} must be true or false (or 1, 0, yes, no, on, off), not {shown(given)}")
    return word


def enabled_layer(option: bool | None) -> bool:
    """True if a layer is enabled. Its option decides, else the environment. The default is True."""
    if option is not None:
        return option
    variable = os.environ.get(VARIABLE, "")
    return enabled_setting(variable, f"the environment variable {VARIABLE}") if variable else True


def choose_limiter(kind: Any, limiter: Any, store: Any, options: dict[str, Any]) -> Any:
    """Returns the given limiter, as the kind that the framework needs, or makes one from the options."""
    if limiter is None:
        return kind(store, **options)
    if store is not None or options:
        names = ", ".join((["store"] if store is not None else []) + sorted(options))
        raise ConfigError(f"a limiter was given, and {names} as well: a limiter has them already")
    limiter = unwrapped(limiter)
    if not isinstance(limiter, (Limiter, AsyncLimiter)):
        raise ConfigError(f"limiter must be a Limiter or an AsyncLimiter, not {shown(limiter)}")
    return to_blocking(limiter) if kind is Limiter else to_async(limiter)


class WebLayer(Generic[L]):
    """A limiter, and the defaults of its limits."""

    # Set by each framework: the kind of limiter that it can wait for, and the adapter for its requests.
    _limiter_class: ClassVar[type[Any]]
    _adapter: ClassVar[RequestAdapter]
    # True if options may be async functions. Otherwise such a function is an error where it is written.
    _awaits: ClassVar[bool] = True
    # The options that are not those of limits and limiters.
    _own_options: ClassVar[tuple[str, ...]] = ("limiter", "store")

    limiter: L
    # False turns the layer off.
    enabled: bool
    # The limit of all requests of an application.
    _declared_application: DeclaredLimit | None

    def _configure(self, limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> None:
        """Takes the options of limits as defaults, and makes the limiter from the others."""
        check_names(options, (*self._own_options, *LIMIT_OPTIONS, *LIMITER_OPTIONS), type(self).__name__)
        given = options.pop("enabled", None)
        self._enabled_option = None if given is None else flag(given, "enabled")
        self.enabled = enabled_layer(self._enabled_option)
        skip = options.pop("skip", None)
        # It applies to each limit, in addition to the limit's own.
        self._skip = None if skip is None else with_arity(skip, 1, "skip")
        self._defaults = {name: options.pop(name) for name in INHERITED_OPTIONS if name in options}
        # A wrong default is an error here, where it is written.
        self._key = DeclaredLimit("1/s", **self._defaults).key
        self._make: Callable[[], L] = functools.partial(choose_limiter, self._limiter_class, limiter, store, options)
        self.limiter = self._make()
        self._generation = self.limiter._generation
        self._uses: list[PolicyUse] = []
        # The layer closes a limiter that it has made, and leaves open one that was given.
        self._owns_limiter = limiter is None

    def _declare(self, policy: PolicyOption, options: Any = None) -> DeclaredLimit:
        """Returns a limit with these options. Missing options come from the layer."""
        declared = DeclaredLimit(policy, self._key, **{**self._defaults, **(options or {})})
        if declared.async_option is not None and not self._awaits:
            raise ConfigError(
                f"{declared.async_option} is async: give a function that is not, because this framework calls it "
                "on a thread"
            )
        return declared

    def _bind(self, declared: DeclaredLimit, place: str = "") -> BoundLimit:
        """Returns the limit, prepared for the layer's limiter and framework, and for the place where it counts."""
        return BoundLimit(declared, self.limiter, self._adapter, place, self._skip)

    def _refresh(self) -> None:
        """Binds the limits anew if a reload may have changed their policies."""
        generation = self.limiter._generation
        if generation != self._generation:
            self._bind_anew()
            self._generation = generation

    def _bind_anew(self) -> None:
        declared = self._declared_application
        self._application = () if declared is None else (self._bind(declared, APPLICATION),)


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
        self._declared_application = declared = self._declare(policy)
        self._bind_anew()
        if declared.address is not None:
            self._pass_on(declared.address)
        if self.enabled:
            warn_of_memory(self.limiter)

    def _pass_on(self, address: Key) -> None:
        """Makes the layers inside this one read addresses as it does, also behind other middleware."""
        for inner in with_wrapped_apps(self.app):
            if isinstance(inner, AppLimits) and inner._declared_application is not None:
                inner._declared_application.read_addresses_as(address)
                inner._bind_anew()


def with_wrapped_apps(app: Any) -> Iterator[Any]:
    """Returns an application and, as far as it is middleware, those that it wraps, from the outside in."""
    layers = 0
    while app is not None and (layers := layers + 1) <= MAX_LAYERS:
        yield app
        app = getattr(app, "app", None)


def check_is_function(view: Any, decorator: str) -> None:
    """Raises for a classmethod, a staticmethod or a property around a function."""
    if isinstance(view, (classmethod, staticmethod, property)):
        raise ConfigError(f"put @{decorator} below @{type(view).__name__}: it is for the function itself")


class LimitDecorator:
    """The decorator that `tg.limit(…)` returns."""

    def __init__(self, policy: PolicyOption, decorate: Callable[[Any], Any]) -> None:
        self._policy = policy
        self._decorate = decorate

    def __call__(self, *view: Any, **more: Any) -> Any:
        if len(view) != 1 or more:
            raise ConfigError(self._used_as_view())
        return self._decorate(view[0])

    def __getattr__(self, name: str) -> Any:
        # Frameworks read the name of a function that they register as a view.
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
    """Limits of the routes of an application. A route may have its own limits, and all others have the default."""

    _own_options = ("limiter", "store", "default", "application")
    # Set by each framework with `init_app`: the class of its applications, and its name for errors.
    _app_class: ClassVar[type[Any]]
    _app_name: ClassVar[str]

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
        self._default = None if default is None else self._declare(default)
        # It raises for a policy that is wrong.
        self._uses += [] if self._default is None else self._bind(self._default).uses
        # One budget for all views, for any method.
        self._declared_application = None if application is None else self._declare(application, {"per_method": False})
        self._apps: list[A] = []
        # The limits of each route, found with its first request.
        self._limits_by_route: dict[Any, Any] = {}
        self._bind_anew()
        if app is not None:
            self.init_app(app)

    def _bind_anew(self) -> None:
        super()._bind_anew()
        self._limits_by_route.clear()

    def _remember(self, route: Any, method: str | None, limits: Any) -> None:
        """Remembers the limits of a route and a method, up to a bound: a client may send any word as its method."""
        if len(self._limits_by_route) < MAX_ROUTES and len(method or "") <= MAX_METHOD:
            with contextlib.suppress(TypeError):  # a callable object without a hash
                self._limits_by_route[route, method] = limits

    def _limits_of_view(
        self, place: str, own: Iterable[tuple[DeclaredLimit, str]] = (), *, use_default: bool = True
    ) -> tuple[BoundLimit, ...]:
        """Returns the limits of a view: its own, each with its place, or else the default, and the application's."""
        limits: list[BoundLimit] = [self._bind(declared, where) for declared, where in own if declared.enabled]
        if not limits and use_default and self._default is not None:
            limits = [self._bind(self._default, place)]
        return (*limits, *self._application)

    def init_app(self, app: A) -> None:
        """Limits an application from now on."""
        if not isinstance(app, self._app_class):
            raise ConfigError(f"Tidegate needs a {self._app_name} application, not {shown(app)}")
        carrier = self._carrier_of(app)
        if getattr(carrier, ATTACHED, None) is not None:
            raise ConfigError("this application has a Tidegate already: use that one for all its limits")
        if self._is_enabled(app):
            warn_of_memory(self.limiter)
        setattr(carrier, ATTACHED, self)
        self._apps.append(app)

    def _carrier_of(self, app: A) -> Any:
        """Returns the object that carries the attributes of an application."""
        return app

    def _is_enabled(self, _: A) -> bool:
        """True if an application is limited."""
        return self.enabled

    def limit(self, policy: PolicyOption, **options: Unpack[LimitOptions]) -> Callable[[Limited], Limited]:
        """A decorator that limits a view. Put it below `@app.get(…)`. Missing options are those of this Tidegate."""
        declared = self._declare(policy, options)
        # Binding raises for a wrong policy here, and not with the first request.
        self._bind(declared)

        def decorate(view: Limited) -> Limited:
            self._check_decorator_order(view, "limit")
            # From now on, a reload refuses to drop these policies, not only once they are bound.
            by = f"the limit of {name_of(view)}"
            self._uses += [self.limiter._use_policy(use[0], by) for use in declared.policies]
            return self._with_limit(view, declared)

        return LimitDecorator(policy, decorate)

    def exempt(self, view: Limited) -> Limited:
        """Exempts a view from all limits of this Tidegate. You can use it as a decorator."""
        self._check_decorator_order(view, "exempt")
        return self._with_limit(view, None)

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        """Raises if the decorator stands where it has no effect."""
        raise NotImplementedError

    @staticmethod
    def _above_route(name: str, decorator: str) -> ConfigError:
        """Returns the error of a decorator that stands above the route of a view."""
        told = f"@tg.{decorator} stands above the route of {name}, which does not get the limit: put it below"
        return ConfigError(f"{told} @app.get(…)")

    def _with_limit(self, view: Limited, declared: DeclaredLimit | None) -> Limited:
        """Returns the view with one more limit. None exempts it."""
        raise NotImplementedError


def unattached(name: str) -> ConfigError:
    """Returns the error of a limit that nothing checks."""
    return ConfigError(
        f"{name} has a limit of a Tidegate that is not attached to the application that serves it: "
        "give it the application, Tidegate(app, …) or tg.init_app(app)"
    )
