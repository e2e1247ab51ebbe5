"""Throttle classes for Django REST framework.

    # settings.py
    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": [
            "tidegate.django.rest_framework.AnonRateThrottle",
            "tidegate.django.rest_framework.UserRateThrottle",
        ],
        "DEFAULT_THROTTLE_RATES": {"anon": "100/day", "user": "1000/day; 10/s"},
    }

    # or for one view
    class Burst(TidegateThrottle):
        policy = "gcra 10/s burst 20"

You can write a rate as a notation or as the name of a policy, in `rate`, in `THROTTLE_RATES` or in the setting. A scope
without a rate is a policy of that name in the setting TIDEGATE. Throttles run after authentication and permissions, so
`user()` reads the user of the request. A denial is a `Throttled` for the exception handler, with `Retry-After` and the
fields of Tidegate. A missing store is 503. Several throttles of a view are checked together: if one denies a request,
the others do not charge it. `limit` of `tidegate.django` limits views, viewsets, actions and methods too.

You need the middleware of `tidegate.django` only for `concurrency`, `refund_when` and `settle`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.http import HttpRequest
from rest_framework.exceptions import APIException, Throttled
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from .._tidegate import Decision
from ..errors import ConfigError, KeyInvalid, PolicyError, StoreError
from ..web.admission import Admission, admit, withdraw
from ..web.functions import qualified_name
from ..web.keys import Key, UnusableKey, client_ip, user
from ..web.limit import BoundLimit
from ..web.options import LIMIT_OPTIONS, LimitOptions
from ..web.refusal import KEY_DETAIL, STORE_WAIT, Refusal
from ..web.steps import run_steps
from .layer import DjangoLayer, ViewLimit, django_request, limits_of, standalone_layer

__all__ = [
    "AnonRateThrottle",
    "RequestThrottled",
    "ScopedRateThrottle",
    "StoreUnavailable",
    "TidegateThrottle",
    "UserRateThrottle",
]


class RequestThrottled(Throttled):  # type: ignore[misc]
    """A limit denied the request. `decision` has the reason."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.retry_after)
        self.decision = decision


class StoreUnavailable(APIException):  # type: ignore[misc]
    """A request was refused with 503, because the store is missing. With "raise", `decision` is None."""

    status_code = 503
    default_detail = "Service temporarily unavailable, try again later."
    default_code = "service_unavailable"

    def __init__(self, decision: Decision | None = None) -> None:
        super().__init__()
        self.decision = decision
        # The exception handler makes Retry-After of it.
        self.wait = STORE_WAIT


class KeyUnusable(APIException):  # type: ignore[misc]
    """A request was refused with 400, because its client has made its key unusable."""

    status_code = 400
    default_detail = KEY_DETAIL
    default_code = "key_invalid"


def check_after_authentication(view: Any, check: Callable[[Any], Any]) -> None:
    """Makes a view check its limits before its throttles, after it has authenticated the request."""
    check_throttles = view.check_throttles

    def check_limits_and_throttles(request: Any) -> None:
        check(request)
        check_throttles(request)

    view.check_throttles = check_limits_and_throttles


def rest_refused(view: Any, cause: Admission | StoreError | KeyInvalid, given: Any = None) -> APIException:
    """Returns the exception for a refused request. Its response is that of `on_denied`, or the exception handler's."""
    refusal = Refusal(cause)
    error: APIException
    if isinstance(cause, Admission):
        error = (StoreUnavailable if refusal.status == 503 else RequestThrottled)(cause.decision)
    else:
        error = StoreUnavailable() if isinstance(cause, StoreError) else KeyUnusable()
        error.__cause__ = cause
        # Refusals have these fields too. A view sends the fields in its `headers`.
        view.headers.update(refusal.announced)
    answer_refusals(view, lambda exc: refusal if exc is error else None, given)
    return error


def answer_refusals(view: Any, refusal_of: Callable[[Any], Refusal | None], given: Any = None) -> None:
    """Makes the view answer its refusal. The answer of the default exception handler becomes a problem (RFC 9457)."""
    handle_exception = view.handle_exception

    def handle(exc: Any) -> Any:
        refusal = refusal_of(exc)
        if refusal is None:
            return handle_exception(exc)
        if given is not None:
            return given
        response = handle_exception(exc)
        # The answer of a project's own handler stays as it is.
        if isinstance(response, Response) and response.data == {"detail": exc.detail}:
            response.data = {**json.loads(refusal.body), **response.data}
            response.headers.setdefault("Cache-Control", "no-store")
            if getattr(getattr(view.request, "accepted_renderer", None), "format", None) == "json":
                response.content_type = "application/problem+json"
        return response

    view.handle_exception = handle


# The attribute of a view that carries its Throttling.
THROTTLING = "_tidegate_throttling"
_OPTIONS = tuple(name for name in LIMIT_OPTIONS if name not in ("on_denied", "enabled"))


class TidegateThrottle(BaseThrottle):  # type: ignore[misc]
    """A throttle with a policy. Set `policy` or `scope` in a subclass, and the options of a limit: key, cost, skip,
    headers, refund_when, settle, hold_until, meta, methods and per_method. Functions among them get the request.

    A notation counts for its scope, or for its class. All views that have this throttle share it.
    """

    # A name, a notation, a Policy, several of them, or a function of the request.
    policy: Any = None
    # The same, under the name of Django REST framework.
    rate: Any = None
    # The name of a rate in DEFAULT_THROTTLE_RATES, or of a policy.
    scope: str | None = None
    # Rates by scope, instead of those of the settings.
    THROTTLE_RATES: ClassVar[dict[str, Any] | None] = None

    # The layer of the request that is checked.
    _layer: DjangoLayer | None = None

    _wait: float | None = None

    def get_policy(self, request: Any, view: Any) -> Any:
        """Returns the policy of a request, or None if nothing limits it."""
        given = _plain(type(self), "policy") or self.rate
        if given is not None:
            return given
        if not self.scope:
            raise ConfigError(f"{type(self).__name__} limits nothing: set its `policy`, its `rate` or its `scope`")
        return self.rate_of(self.scope)

    def rate_of(self, scope: str) -> Any:
        """Returns the rate of a scope, or None if the settings have None."""
        rates = self.THROTTLE_RATES
        if rates is None:
            # Without the defaults of Django REST framework, which are None and limit no request.
            rates = api_settings.user_settings.get("DEFAULT_THROTTLE_RATES") or {}
        if scope in rates:
            return rates[scope]
        try:
            layer = standalone_layer() if self._layer is None else self._layer
            layer.limiter.policy(scope)
        except PolicyError:
            raise ConfigError(
                f"No default throttle rate set for {scope!r} scope: put it into DEFAULT_THROTTLE_RATES, or a policy of "
                "that name into TIDEGATE"
            ) from None
        return scope

    def allow_request(self, request: Any, view: Any) -> bool:
        """Checks a request together with the other throttles of Tidegate of its view. All are charged, or none."""
        throttling: Throttling = vars(view).setdefault(THROTTLING, Throttling())
        if throttling.has_answered(self):
            return True
        http: HttpRequest = django_request(request)
        state = limits_of(http)
        layer = standalone_layer() if state is None else state.layer
        if not layer.enabled:
            return True
        together = throttling.begin(self, view)
        limits = [bound for one in together if (bound := one._bound(layer, request, view, state)) is not None]
        if not limits:
            return True
        try:
            admission = run_steps(admit(limits, request, http.method), layer.limiter)
        except (StoreError, UnusableKey) as error:
            raise rest_refused(view, error) from error
        if admission is None:
            return True
        if state is None:
            # A view sends the fields in its `headers`.
            view.headers.update(admission.bound.headers.text(*admission.announced))
        else:
            state.add(http, admission)
        http.rate_limit = admission.decision
        if admission.decision:
            throttling.admissions.append(admission)
            return True
        throttling.refused = True
        # If one throttle denies a request, the others do not charge it.
        run_steps(withdraw(throttling.admissions), layer.limiter)
        refusal = Refusal(admission)
        if refusal.status == 503:
            raise rest_refused(view, admission)
        waits = [one.retry_after for one in admission.decision.decisions or (admission.decision,) if not one]
        self._wait = None if None in waits else max(wait for wait in waits if wait is not None)
        answer_refusals(view, lambda exc: refusal if isinstance(exc, Throttled) else None)
        return False

    def wait(self) -> float | None:
        """Returns the seconds until the request would be admitted, or None for never."""
        return self._wait

    def _bound(self, layer: DjangoLayer, request: Any, view: Any, state: Any) -> BoundLimit | None:
        """Returns the limit of the throttle, or None if it does not limit the request."""
        self._layer, kind = layer, type(self)
        policy = self.get_policy(request, view)
        if policy is None:
            return None

        def declare() -> ViewLimit:
            options = {name: given for name in _OPTIONS if (given := _plain(kind, name)) is not None}
            key = options.get("key") or self.default_key()
            if key is not None:
                # NUM_PROXIES also decides how a caller without a user or a header is identified.
                options["key"] = key.within(_address(layer)) if isinstance(key, Key) else key
            return ViewLimit(policy, cast("LimitOptions", options))

        # A throttle is made for each request, and its limit once.
        known = (kind, _said(policy), self.scope, api_settings.NUM_PROXIES)
        bound = layer.throttle_limit(known, declare, f"throttle {self.scope or qualified_name(kind)}")
        if state is None and bound.has_follow_up:
            raise ConfigError(
                f"{qualified_name(kind)} has something to do after the response: put "
                "'tidegate.django.TidegateMiddleware' into MIDDLEWARE"
            )
        return bound

    def default_key(self) -> Key | None:
        """Returns the key for a class that sets none. None takes the key of the settings."""
        return None


class AnonRateThrottle(TidegateThrottle):
    """Limits requests without a user, by address. The scope is "anon". NUM_PROXIES is the number of trusted proxies."""

    scope = "anon"

    def get_policy(self, request: Any, view: Any) -> Any:
        """Returns the policy of a request, or None for a request with a user."""
        return None if request.user and request.user.is_authenticated else super().get_policy(request, view)

    def default_key(self) -> Key | None:
        """Returns the key of the client's address."""
        return _address(self._layer)


class UserRateThrottle(TidegateThrottle):
    """Limits each user, and requests without one by address. The scope is "user"."""

    scope: str | None = "user"

    def default_key(self) -> Key | None:
        """Returns the key of the user, or else of the address."""
        return user(otherwise=_address(self._layer))


class ScopedRateThrottle(UserRateThrottle):
    """Limits the views with a `throttle_scope`, each scope by itself. All other views have no limit."""

    scope = None

    def get_policy(self, request: Any, view: Any) -> Any:
        """Returns the policy of the view's scope, or None for a view without one."""
        self.scope = getattr(view, "throttle_scope", None)
        return super().get_policy(request, view) if self.scope else None


class Throttling:
    """The answers of the throttles of one view about its request."""

    # True if one has denied the request. The answers of the others change nothing then.
    refused = False

    def __init__(self) -> None:
        # The classes of throttles that were asked together with an earlier one.
        self._asked: list[type] = []
        self.admissions: list[Admission] = []

    def has_answered(self, throttle: TidegateThrottle) -> bool:
        """True if the answer of a throttle is known already."""
        if self.refused:
            return True
        if type(throttle) in self._asked:
            self._asked.remove(type(throttle))
            return True
        return False

    def begin(self, first: TidegateThrottle, view: Any) -> list[TidegateThrottle]:
        """Returns the throttles to check together. A class with its own `allow_request` waits for its turn."""
        others = [one for one in view.get_throttles() if _joins(one)] if _joins(first) else []
        self._asked = [type(one) for one in others]
        if type(first) not in self._asked:
            return [first]
        self._asked.remove(type(first))
        return others


def _joins(throttle: object) -> bool:
    return getattr(type(throttle), "allow_request", None) is TidegateThrottle.allow_request


def _plain(kind: type, name: str) -> Any:
    """Returns an attribute of a class as it is written there, so that a function does not become a method."""
    for owner in kind.__mro__:
        if name in vars(owner):
            found = vars(owner)[name]
            return found.__func__ if isinstance(found, staticmethod) else found
    return None


def _said(policy: Any) -> Any:
    """Returns a policy that can be part of the key of a dict: lists become tuples."""
    return tuple(map(_said, policy)) if isinstance(policy, (list, tuple)) else policy


def _address(layer: DjangoLayer | None) -> Key:
    proxies = api_settings.NUM_PROXIES
    if proxies is not None:
        return client_ip(trusted_proxies=proxies)
    return client_ip() if layer is None else layer.address_key
