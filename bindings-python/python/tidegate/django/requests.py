"""Reads the requests of Django and of Django REST framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpRequest

from ..web.environ import EnvironAdapter
from ..web.exchange import ADAPTER
from ..web.keys import UNAUTHENTICATED


def django_request(request: Any) -> HttpRequest | None:
    """The request of Django, also of one of Django REST framework; None for anything else."""
    if isinstance(request, HttpRequest):
        return request
    inner = getattr(request, "_request", None)
    return inner if isinstance(inner, HttpRequest) else None


def find_request(arguments: Iterable[Any], instance: Any) -> Any:
    """The request among the arguments of a function, or of the view that it is a method of."""
    for one in arguments:
        if django_request(one) is not None:
            return one
    own = getattr(instance, "request", None)
    return own if django_request(own) is not None else None


def is_rest_view(view: Any) -> bool:
    """Whether a class or an object is a view of Django REST framework."""
    return hasattr(view, "check_throttles") and hasattr(view, "initialize_request")


def rest_class(view: Any) -> Any:
    """The class of a view that Django REST framework has made; None for any other."""
    found = getattr(view, "cls", None)
    return found if is_rest_view(found) else None


class DjangoAdapter(EnvironAdapter):
    """The RequestAdapter."""

    authentication = (
        "AuthenticationMiddleware belongs into MIDDLEWARE, and claims into request.claims. Django REST framework "
        "authenticates inside of its views: put @limit below @api_view, on the class of the view or on its methods, or "
        "use a throttle class of tidegate.django.rest_framework"
    )

    def environ(self, request: Any) -> Mapping[str, Any]:
        """The environ of a request."""
        meta: Mapping[str, Any] = request.META
        return meta

    def over_unix(self, request: Any) -> bool:
        """Whether the server says that it listens on a Unix domain socket."""
        # Over ASGI the environ is Django's own, and the scope says what the server said.
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
    """Whether the view that serves the request authenticates it by itself."""
    view = rest_class(getattr(getattr(request, "resolver_match", None), "func", None))
    if view is None:
        return False
    from rest_framework.authentication import SessionAuthentication

    # A session was read by Django's middleware already.
    return not all(issubclass(one, SessionAuthentication) for one in view.authentication_classes)
