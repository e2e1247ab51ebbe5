"""Limits for Sanic: `pip install tidegate[sanic]`.

    from sanic import Sanic
    from tidegate.sanic import Tidegate

    app = Sanic("shop")
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @app.post("/login")
    @tg.limit("5/minute")
    async def login(request): ...

Functions that you give as options get the request. Its handler finds the Decision in `request.ctx.rate_limit`. `user()`
reads `request.ctx.user`, and `claim()` reads the verified claims in `request.ctx.claims`. A request middleware sets
them, to None for a visitor. Limits are checked after all request middleware of the usual priority.

A refusal that `on_denied` does not answer goes to the application's `exception` handler of RateLimited or StoreError.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

from sanic import HTTPResponse, Request, Sanic
from sanic.exceptions import SanicException

from ._tidegate import status
from .errors import ConfigError, KeyInvalid, RateLimited, StoreError
from .web.admission import Admission, end_work, refund
from .web.exchange import ADAPTER
from .web.handlers import HandlerLimits
from .web.keys import UNAUTHENTICATED, claim, client_ip, fixed, header, user
from .web.layers import check_is_function
from .web.limit import BoundLimit
from .web.refusal import Refusal
from .web.steps import run_steps_async

__all__ = ["Tidegate", "claim", "client_ip", "fixed", "header", "user"]

# Below that of all middleware that names none, so that it runs after them.
_PRIORITY = -100


class _Adapter:
    authentication = "a request middleware sets request.ctx.user and request.ctx.claims, to None for a visitor"

    def peer(self, request: Request) -> str | None:
        return None if request.conn_info is None else request.conn_info.client_ip

    def over_unix(self, request: Request) -> bool:
        if (scope := getattr(request.transport, "scope", None)) is not None:
            return ADAPTER.over_unix(scope)
        return request.conn_info is not None and isinstance(request.conn_info.sockname, str)

    def header(self, request: Request, name: str) -> str | None:
        return request.headers.get(name)

    def forwarded(self, request: Request) -> list[bytes]:
        return [line.encode("utf-8", "surrogateescape") for line in request.headers.getall("x-forwarded-for", [])]

    def user(self, request: Request) -> object:
        return getattr(request.ctx, "user", UNAUTHENTICATED)

    def claims(self, request: Request) -> Any:
        return getattr(request.ctx, "claims", UNAUTHENTICATED)


class _Refused:
    """The common part of the exceptions of a refusal. Each is also an exception of Tidegate and one of Sanic."""

    __str__ = RateLimited.__str__

    def __init__(self, refusal: Refusal) -> None:
        SanicException.__init__(self, refusal.phrase, refusal.status, quiet=True, headers=dict(refusal.own_fields))  # type: ignore[arg-type]
        super().__init__(*refusal.arguments)


class Refused(_Refused, RateLimited, SanicException):
    """A refused request. Exception handlers of RateLimited may answer it."""


class StoreRefused(_Refused, StoreError, SanicException):
    """A request that cannot be checked, because its store is missing and `on_store_error` is "raise"."""


class KeyRefused(_Refused, KeyInvalid, SanicException):
    """A request with a key that its client has made unusable."""


class Tidegate(HandlerLimits[Sanic[Any, Any]]):
    """Limits of a Sanic application.

    default: the policy of each handler without a limit. Each such handler has its own budget.
    application: the policy of all requests together, checked with the limits of the handler in one round trip.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application has stopped.
    enabled: False turns all limits off. Without it, the environment variable TIDEGATE_ENABLED decides.
    skip: a function of the request. If it returns true, the request is exempt from all limits.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the default options of
    all limits.

    You can decorate handlers, also sync ones, and methods of class views with `limit`. The units of a "concurrency"
    limit are held until the last byte of the response, or until the client disconnects.
    """

    _adapter = _Adapter()
    _app_class, _app_name = Sanic, "Sanic"

    def init_app(self, app: Sanic[Any, Any]) -> None:
        """Limits an application from now on."""
        super().init_app(app)
        app.register_middleware(self._check, "request", priority=_PRIORITY)
        app.register_middleware(self._announce, "response")  # type: ignore[arg-type]
        app.signal("http.lifecycle.response")(self._end)
        app.before_server_start(self._verify_routes)
        app.after_server_stop(self._close)

    def _carrier_of(self, app: Sanic[Any, Any]) -> Any:
        return app.ctx

    async def _verify_routes(self, app: Sanic[Any, Any]) -> None:
        for route in app.router.routes:
            self._verify(route.handler)

    def _is_attached(self, arguments: tuple[Any, ...]) -> bool:
        request = next((one for one in arguments if isinstance(one, Request)), None)
        return request is None or getattr(request.ctx, "tidegate", None) is self

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        check_is_function(view, f"tg.{decorator}")
        if inspect.isclass(view) or not callable(view):
            raise ConfigError(f"@tg.{decorator} must stand above a handler or a method of a class view")

    async def _check(self, request: Request) -> HTTPResponse | None:
        request.ctx.tidegate, request.ctx.rate_limit = self, None
        self._refresh()
        route = request.route
        limits: tuple[BoundLimit, ...] = self._application
        if route is not None:
            view_class = getattr(route.handler, "view_class", None)
            limits = self._limits_of(route.name, route.handler, view_class, route.path, request.method)
        admission = await self._admit(request, limits) if self.enabled else None
        if isinstance(admission, Refusal):
            return self._refuse(request, admission)
        if admission is None:
            return None
        request.ctx.tidegate_admission, request.ctx.rate_limit = admission, admission.decision
        if admission.decision:
            task = asyncio.current_task()
            if admission.holds and task is not None:
                # A client that disconnects ends the task of its connection, and its request gets no response.
                request.ctx.tidegate_callback = functools.partial(_release, admission)
                task.add_done_callback(request.ctx.tidegate_callback)
            return None
        given = await self._given(request, admission)
        if given is None:
            return self._refuse(request, Refusal(admission))
        if given.status == 200:
            given.status = status(admission.decision)
        return given  # type: ignore[no-any-return]

    def _refuse(self, request: Request, refusal: Refusal) -> HTTPResponse:
        """Raises for the exception handlers of the application, or returns the response if it has none."""
        error: Any = refusal.one_of(Refused, StoreRefused, KeyRefused)(refusal)
        lookup, name = request.app.error_handler.lookup, request.name
        # A handler of all exceptions is not for refusals.
        if lookup(error, name) is not lookup(Exception(), name):
            raise error
        return HTTPResponse(refusal.body, refusal.status, dict(refusal.own_fields), "application/problem+json")

    async def _announce(self, request: Request, response: HTTPResponse) -> None:
        """Gives charges back, and adds the header fields, when a response begins."""
        admission: Admission | None = getattr(request.ctx, "tidegate_admission", None)
        if admission is not None:
            await run_steps_async(refund((admission,), request, response), self.limiter)
            for name, value in admission.bound.headers.text(*admission.announced):
                if admission.decision or name not in response.headers:
                    response.headers.add(name, value)

    async def _end(self, request: Request, response: HTTPResponse) -> None:
        """Ends the work of a request before its last byte."""
        admission: Admission | None = getattr(request.ctx, "tidegate_admission", None)
        if admission is not None:
            task, callback = asyncio.current_task(), getattr(request.ctx, "tidegate_callback", None)
            if task is not None and callback is not None:
                task.remove_done_callback(callback)
            await run_steps_async(end_work((admission,), request, response), self.limiter)


def _release(admission: Admission, _: object) -> None:
    admission.release()
