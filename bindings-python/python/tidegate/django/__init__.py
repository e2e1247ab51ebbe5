"""Limits for Django and Django REST framework.

    # settings.py
    MIDDLEWARE = [..., "tidegate.django.TidegateMiddleware"]
    TIDEGATE = {"store": "redis://127.0.0.1:6379/0", "default": "100/minute"}

    # views.py
    from tidegate.django import limit

    @limit("5/minute")
    def login(request): ...

`TIDEGATE` takes the options of a limiter, or a `limiter`. `default` is the policy of every view without a limit, with a
budget for each such view. `application` is one limit for all requests. You can also set `enabled`, and defaults for the
options of all limits. `key`, `cost`, `skip`, `on_denied`, `refund_when` and `settle` may be dotted paths. Functions in
options get the request. `request.rate_limit` is the Decision about the request.

A limit is checked where its decorator stands. Answers of an outer decorator are not charged, and a limit with `user()`
stands below a decorator that authenticates. `default` and `application` are checked before the view and its decorators.
`user()` reads `request.user`, `claim()` the verified claims in `request.claims`. Django REST framework authenticates
inside of its views. There, put `@limit` below `@api_view`, on the class of a view or on its methods and actions, or use
a throttle class of `tidegate.django.rest_framework` instead.

A refusal that `on_denied` does not answer goes to `handler429(request, exception)` of the URLconf, or to `handler503`
if the store is the reason. Without them it is a problem (RFC 9457). In a view of Django REST framework it is a
`Throttled`, for the exception handler.
"""

from __future__ import annotations

from ..web.keys import Key, claim, client_ip, fixed, header, user
from .decorator import exempt, limit
from .middleware import RequestDenied, RequestUnchecked, TidegateMiddleware

__all__ = [
    "Key",
    "RequestDenied",
    "RequestUnchecked",
    "TidegateMiddleware",
    "claim",
    "client_ip",
    "exempt",
    "fixed",
    "header",
    "limit",
    "user",
]
