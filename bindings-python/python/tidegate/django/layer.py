"""The limits of a Django project: those of its settings, and those that are written at its views."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.module_loading import import_string

from .._shown import shown
from .._tidegate import Limiter
from .._tracing import to_async
from ..errors import ConfigError
from ..web.admission import Admission
from ..web.exchange import ADAPTER
from ..web.functions import qualified_name, with_wrapped
from ..web.keys import UNAUTHENTICATED, EnvironAdapter, Key, client_ip
from ..web.layers import LIMITS, MAX_ROUTES, RouteLimits, enabled_layer, enabled_setting
from ..web.limit import MAX_POLICIES, BoundLimit, DeclaredLimit, PolicyOption
from ..web.options import LIMIT_OPTIONS, LIMITER_OPTIONS, LimitOptions, check_names
from ..web.processes import warn_of_memory


def django_request(request: Any) -> HttpRequest | None:
    """Returns the request of Django, also from a request of Django REST framework, or None for anything else."""
    if isinstance(request, HttpRequest):
        return request
    return inner if isinstance(inner := getattr(request, "_request", None), HttpRequest) else None


def find_request(arguments: Iterable[Any], instance: Any) -> Any:
    """Returns the request among the arguments of a function, or the request of the view that has this method."""
    candidates = (*arguments, getattr(instance, "request", None))
    return next((one for one in candidates if django_request(one) is not None), None)


def is_rest_view(view: Any) -> bool:
    """True if a class or an object is a view of Django REST framework."""
    return hasattr(view, "check_throttles") and hasattr(view, "initialize_request")


def rest_class(view: Any) -> Any:
    """Returns the class of a view that Django REST framework has made, or None for any other view."""
    return found if is_rest_view(found := getattr(view, "cls", None)) else None


class DjangoAdapter(EnvironAdapter):
    """Reads the requests of Django, as a RequestAdapter."""

    authentication = (
        "AuthenticationMiddleware belongs into MIDDLEWARE, and claims into request.claims. Django REST framework "
        "authenticates inside of its views: put @limit below @api_view, on the class of the view or on its methods, or "
        "use a throttle class of tidegate.django.rest_framework"
    )

    def environ(self, request: Any) -> Any:
        """The environ of a request."""
        return request.META

    def over_unix(self, request: Any) -> bool:
        """True if the server announces that it listens on a Unix domain socket."""
        # Over ASGI, Django makes the environ itself, and only the scope has the server's values.
        scope = getattr(request, "scope", None)
        return super().over_unix(request) if scope is None else ADAPTER.over_unix(scope)

    def user(self, request: Any) -> object:
        """The user."""
        if isinstance(request, HttpRequest) and _authenticates_later(request):
            return UNAUTHENTICATED
        return getattr(request, "user", UNAUTHENTICATED)

    def claims(self, request: Any) -> Any:
        """The verified claims."""
        found = getattr(request, "claims", UNAUTHENTICATED)
        if found is not UNAUTHENTICATED or isinstance(request, HttpRequest):
            return found
        # Authentication classes leave a verified token here.
        token = request.auth
        return token if hasattr(token, "get") else None


def _authenticates_later(request: HttpRequest) -> bool:
    """True if the view that serves the request authenticates it by itself."""
    view = rest_class(getattr(getattr(request, "resolver_match", None), "func", None))
    if view is None:
        return False
    from rest_framework.authentication import SessionAuthentication

    # A session was read by Django's middleware already.
    return not all(issubclass(one, SessionAuthentication) for one in view.authentication_classes)


# Options that settings may have as a dotted path.
_FUNCTIONS = ("key", "cost", "skip", "on_denied", "refund_when", "settle")


class ViewLimit:
    """A limit as it is written at a view. Missing options come from the settings, which are read later."""

    def __init__(self, policy: PolicyOption, options: LimitOptions) -> None:
        self.enabled = DeclaredLimit(policy, **options).enabled
        self.policy, self.options = policy, options


def settings_options() -> dict[str, Any]:
    """The setting TIDEGATE."""
    given = getattr(settings, "TIDEGATE", {})
    if not isinstance(given, dict):
        raise ConfigError(f"the setting TIDEGATE must be a dict of options, not {shown(given)}")
    options = dict(given)
    if (enabled := options.get("enabled")) is not None:
        options["enabled"] = enabled_setting(enabled, "TIDEGATE['enabled']")
    for name in _FUNCTIONS:
        # A key without a dot is no path. `key_option` refuses it, as in any other place.
        if isinstance(path := options.get(name), str) and not (name == "key" and "." not in path):
            try:
                options[name] = import_string(path)
            except ImportError as error:
                raise ConfigError(f"TIDEGATE[{name!r}] must be a function or its dotted path: {error}") from error
    return options


def is_enabled() -> bool:
    """True if the settings and the environment turn limits on."""
    return enabled_layer(settings_options().get("enabled"))


def place_of(view: Any, request: HttpRequest) -> str:
    """Returns the place of a limit that is written at a view or at a function."""
    owner = class_of(view)
    if owner is not None and (function := _function_of(owner)) is None:
        return qualified_name(owner)
    name = qualified_name(view if owner is None else function)
    # Inner functions may share one name, so their routes distinguish them.
    match = request.resolver_match
    return f"{name} {match.route}" if "<" in name and match is not None else name


def _function_of(view_class: Any) -> Any:
    """Returns the function from which `@api_view` has made a class, or None for any other class."""
    if view_class.__qualname__ != "WrappedAPIView":
        return None
    handlers = (vars(view_class)[name] for name in view_class.http_method_names if name in vars(view_class))
    return next((one for handler in handlers for one in list(with_wrapped(handler))[1:]), None)


def class_of(view: Any) -> Any:
    """Returns the class from which `as_view()` has made a view."""
    return rest_class(view) or getattr(view, "view_class", None)


class DjangoLayer(RouteLimits[Limiter, Any]):
    """The limiter and the limits of a project."""

    _limiter_class = Limiter
    _adapter = DjangoAdapter()

    def __init__(self) -> None:
        self._bound: dict[tuple[Any, str], BoundLimit] = {}
        # The limits of throttles, by class and policy.
        self.throttle_limits: dict[Any, BoundLimit] = {}
        options = settings_options()
        check_names(options, (*self._own_options, *LIMIT_OPTIONS, *LIMITER_OPTIONS), "the setting TIDEGATE")
        super().__init__(**options)
        if self.enabled:
            warn_of_memory(self.limiter)
        self.async_limiter = to_async(self.limiter)

    def _bind_anew(self) -> None:
        super()._bind_anew()
        self._bound.clear()
        self.throttle_limits.clear()

    @property
    def address_key(self) -> Key:
        """The key that reads client addresses: the key of the settings if it reads any, else `client_ip()`."""
        address = None if self._key is None else self._key.address
        return address or client_ip()

    def bound(self, limit: ViewLimit, place: str) -> BoundLimit:
        """Returns a limit that is written at a place, prepared for its checks."""
        self._refresh()
        known = self._bound.get((limit, place))
        if known is None:
            known = self._bind(self._declare(limit.policy, limit.options), place)
            if len(self._bound) < MAX_ROUTES:
                self._bound[limit, place] = known
        return known

    def throttle_limit(self, known: Any, declare: Callable[[], ViewLimit], place: str) -> BoundLimit:
        """Returns the limit of a throttle, prepared. `known` identifies it, as a throttle may make many policies."""
        self._refresh()
        try:
            bound = self.throttle_limits.get(known)
        except TypeError:  # a function without a hash
            known = bound = None
        if bound is None:
            limit = declare()
            bound = self._bind(self._declare(limit.policy, limit.options), place)
            if known is None:
                return bound
            if len(self.throttle_limits) >= MAX_POLICIES:
                self.throttle_limits.clear()
            self.throttle_limits[known] = bound
        return bound

    def shared_limits(self, view: Any, request: HttpRequest) -> Any:
        """Returns the default and the application's limit, as far as they apply. None: the view has its own limits."""
        method = request.method
        try:
            return self._limits_by_route[view, method]
        except (KeyError, TypeError):
            pass
        found = list(_written_at(view, method))
        limits: Any = () if None in found else None
        if not any(one is None or one.enabled for one in found):
            use_default = not _answers_by_itself(view, method)
            limits = self._limits_of_view(place_of(view, request), use_default=use_default)
        self._remember(view, method, limits)
        return limits


def _handler_of(view: Any, method: str | None) -> Any:
    """Returns the method of a class that serves an HTTP method, or None if there is none."""
    view_class, actions = class_of(view), getattr(view, "actions", None)
    name = (method or "").lower()
    for one in (name, "get") if name == "head" else (name,):
        # A viewset knows its actions by the methods of a route.
        action = one if actions is None else actions.get(one)
        if action is not None and one in view_class.http_method_names and hasattr(view_class, action):
            return getattr(view_class, action)
    return view_class.options if name == "options" else None


def _answers_by_itself(view: Any, method: str | None) -> bool:
    """True if the class of a view answers without code of the project: with 405, or to OPTIONS."""
    if class_of(view) is None:
        return False
    handler = _handler_of(view, method)
    return handler is None or (method == "OPTIONS" and handler.__module__.startswith(("django.", "rest_framework.")))


def _written_at(view: Any, method: str | None) -> Iterator[Any]:
    """Returns the limits that are written at a view, at its class, and at the method that serves the request."""
    places = [view]
    view_class = class_of(view)
    if view_class is not None:
        places += [view_class, view_class.dispatch, _handler_of(view, method)]
    for place in places:
        if inspect.isclass(place):
            yield from getattr(place, LIMITS, ())
        elif place is not None:
            for one in with_wrapped(place):
                yield from getattr(one, LIMITS, ())


def limits_at(layer: DjangoLayer, view: Any, request: Any) -> tuple[BoundLimit, ...]:
    """Returns all limits that a request of a view meets, for the command that lists them."""
    shared = layer.shared_limits(view, request)
    if shared is not None:
        return shared  # type: ignore[no-any-return]
    own = (one for one in _written_at(view, request.method) if one.enabled)
    return (*(layer.bound(one, place_of(view, request)) for one in own), *layer._application)


_standalone: dict[None, DjangoLayer] = {}


def standalone_layer() -> DjangoLayer:
    """Returns the layer of throttle classes in a project without the middleware."""
    layer = _standalone.get(None)
    # The threads of the first requests may each make one. All of them use the one that is kept.
    return _standalone.setdefault(None, DjangoLayer()) if layer is None else layer


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "TIDEGATE":
        _standalone.clear()


setting_changed.connect(_forget)


# The attribute of a request that carries its RequestLimits.
NAME = "_tidegate"


class RequestLimits:
    """The limits of one request: those that were checked, and the admissions."""

    def __init__(self, layer: DjangoLayer) -> None:
        self.layer = layer
        self.admissions: list[Admission] = []
        # The limits of decorators that were checked. Each is checked once for a request.
        self.checked: set[ViewLimit | None] = set()
        # The limits of the application, until they are checked with those of the view.
        self.pending: tuple[BoundLimit, ...] = layer._application
        # The view of the request, once it is known.
        self.view: Any = None
        # The admission of `default`, which a limit of the view replaces.
        self.shared: Admission | None = None

    def add(self, request: HttpRequest, admission: Admission) -> None:
        """Adds an admission to the request."""
        self.admissions.append(admission)
        request.rate_limit = admission.decision

    def release(self) -> None:
        """Gives back the holds of a request that has no response."""
        for admission in self.admissions:
            admission.release()


def limits_of(request: HttpRequest) -> RequestLimits | None:
    """Returns the limits of a request, or None if the middleware has not seen it."""
    return getattr(request, NAME, None)
