"""Limits for Quart: `pip install tidegate[quart]`.

    from quart import Quart
    from tidegate.quart import Tidegate

    app = Quart(__name__)
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.post("/login")
    @tg.limit("5/minute")
    async def login(): ...

Functions that you give as options get the request, or the websocket. `refund_when` and `settle` also get the status and
the header fields of the response. A request is checked right before its view runs, after all `before_request`
functions. `user()` reads `g.user`, and `claim()` reads the verified claims in `g.claims`. Set these in a
`before_request` function, to None for a visitor.

A refusal that `on_denied` does not answer goes to the application's `errorhandler(429)` or `errorhandler(RateLimited)`.
A refusal because of the store goes to `errorhandler(503)` or `errorhandler(StoreError)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quart import Quart, g, has_request_context, has_websocket_context, request, websocket

from ._tidegate import Decision, status
from .errors import ConfigError, StoreError
from .flask import refused
from .web.admission import DECISION
from .web.exchange import NAME, AsgiExchange, Lifespan, Receive, Scope, ScopeAdapter, Send
from .web.handlers import HandlerLimits
from .web.keys import UNAUTHENTICATED, UnusableKey, claim, client_ip, fixed, header, user
from .web.layers import check_is_function
from .web.limit import BoundLimit

__all__ = ["Tidegate", "claim", "client_ip", "decision", "fixed", "header", "user"]


class _Adapter(ScopeAdapter):
    authentication = (
        "set g.user and g.claims in a before_request function (None for a visitor). The decorators of a view run after "
        "its limits, which is too late"
    )

    def user(self, request: Any) -> object:
        return g.get("user", UNAUTHENTICATED)

    def claims(self, request: Any) -> Any:
        return g.get("claims", UNAUTHENTICATED)


def _current() -> Any:
    """Returns the request or the websocket that is served, or None."""
    if has_request_context():
        return request._get_current_object()  # type: ignore[attr-defined]
    return websocket._get_current_object() if has_websocket_context() else None  # type: ignore[attr-defined]


def decision() -> Decision | None:
    """Returns the Decision about the current request, or None. For several policies it has `decisions`."""
    current = _current()
    return None if current is None else current.scope.get(DECISION)


class Tidegate(Lifespan, HandlerLimits[Quart]):
    """Limits of a Quart application.

    default: the policy of each view without a limit. Each such view has its own budget.
    application: the policy of all requests together, checked with the limits of the view in one round trip.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application shuts down.
    enabled: False turns all limits off. Without it, the environment variable TIDEGATE_ENABLED decides.
    skip: a function of the request. If it returns true, the request is exempt from all limits.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the default options of
    all limits.

    You can decorate views, also sync ones, websockets, and methods of class views with `limit`. The units of a
    "concurrency" limit are held until the last byte of the response, or until the client disconnects.
    """

    _adapter = _Adapter()
    _app_class, _app_name = Quart, "Quart"

    def init_app(self, app: Quart) -> None:
        """Limits an application from now on."""
        super().init_app(app)
        # The fields are added outside of everything, and limits are checked after all before_request functions.
        app.asgi_app = self._observed(app.asgi_app)  # type: ignore[method-assign]
        app.dispatch_request = self._checked(app, app.dispatch_request)  # type: ignore[method-assign]
        app.dispatch_websocket = self._checked(app, app.dispatch_websocket)  # type: ignore[method-assign]

    def _started(self) -> None:
        for app in self._apps:
            for view in app.view_functions.values():
                self._verify(view)

    def _is_attached(self, arguments: tuple[Any, ...]) -> bool:
        current = _current()
        return current is None or getattr(current.scope.get(NAME), "layer", None) is self

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        check_is_function(view, f"tg.{decorator}")
        if isinstance(view, type) or not callable(view):
            raise ConfigError(f"@tg.{decorator} must stand above a view or a method of a class view")

    def _observed(self, app: Callable[..., Any]) -> Any:
        async def observed(scope: Scope, receive: Receive, send: Send) -> None:
            if (unlimited := self._unlimited(app, scope, receive, send)) is not None:
                await unlimited
                return
            scope[NAME] = exchange = AsgiExchange(self, scope, receive, send)
            try:
                await app(scope, receive, exchange.send)
            finally:
                scope.pop(NAME, None)
                await exchange.end_handler()

        return observed

    def _checked(self, app: Quart, dispatch: Callable[..., Any]) -> Any:
        async def checked(*context: Any) -> Any:
            current = _current()
            exchange: AsgiExchange = current.scope[NAME]
            exchange.request = current
            rule, method = current.url_rule, getattr(current, "method", "GET")
            limits: tuple[BoundLimit, ...] = self._application
            if rule is not None:
                view = app.view_functions[rule.endpoint]
                limits = self._limits_of(rule.endpoint, view, getattr(view, "view_class", None), rule.rule, method)
                if method == "OPTIONS" and rule.provide_automatic_options:
                    limits = ()
            if not limits or not self.enabled:
                return await dispatch(*context)
            try:
                admission = await exchange.check(limits)
            except (StoreError, UnusableKey) as error:
                raise refused(app, error) from error  # type: ignore[arg-type]
            if admission is None or admission.decision:
                return await dispatch(*context)
            exchange.refused = True
            given = await self._given(current, admission)
            if given is None:
                raise refused(app, admission)  # type: ignore[arg-type]
            if isinstance(given, tuple) and len(given) > 1 and isinstance(given[1], (int, str)):
                return given
            response: Any = await app.make_response(given)
            if response.status_code == 200:
                response.status_code = status(admission.decision)
            return response

        return checked
