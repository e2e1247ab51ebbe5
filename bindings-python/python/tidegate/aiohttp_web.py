"""Limits for servers of aiohttp.web: `pip install tidegate[aiohttp]`. Calls that go out are in `tidegate.aiohttp`.

    from aiohttp import web
    from tidegate.aiohttp_web import Tidegate

    app = web.Application()
    tg = Tidegate(app, store="redis://127.0.0.1:6379/0", default="100/minute")

    @tg.limit("5/minute")
    async def login(request): ...

    app.router.add_post("/login", login)

Functions that you give as options get the request. Its handler finds the Decision in `request[RATE_LIMIT]`. Limits are
checked by a middleware, which `Tidegate(app)` adds to the application. `user()` reads `request[USER]`, and `claim()`
reads the verified claims in `request[CLAIMS]`. A middleware that stands before this one sets them.

A refusal that `on_denied` does not answer is an exception, `tidegate.RateLimited` and a `web.HTTPException` at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.payload import Payload

from ._tidegate import status
from .errors import ConfigError, KeyInvalid, RateLimited, StoreError
from .web.admission import Admission, end_work, refund
from .web.functions import is_async
from .web.handlers import HandlerLimits
from .web.keys import UNAUTHENTICATED, claim, client_ip, fixed, header, user
from .web.layers import check_is_function
from .web.limit import BoundLimit
from .web.refusal import Refusal
from .web.steps import run_steps_async

__all__ = ["CLAIMS", "RATE_LIMIT", "USER", "Tidegate", "claim", "client_ip", "fixed", "header", "user"]

# Older versions of aiohttp have only texts as keys of a request, and newer ones warn of them.
_key: Any = getattr(web, "RequestKey", lambda name, _: name)
RATE_LIMIT, USER, CLAIMS = _key("rate_limit", object), _key("user", object), _key("claims", object)
# The admission of a request, and the layers that have checked it.
_ADMISSION, _LAYERS = _key("tidegate.admission", object), _key("tidegate.layers", object)


class _Adapter:
    authentication = (
        "a middleware that stands before Tidegate(app) sets request[USER] and request[CLAIMS], to None for a "
        "visitor. The decorators of a handler run after its limits, which is too late"
    )

    def peer(self, request: web.Request) -> str | None:
        return request.remote

    def over_unix(self, request: web.Request) -> bool:
        name = None if request.transport is None else request.transport.get_extra_info("sockname")
        return isinstance(name, (str, bytes))

    def header(self, request: web.Request, name: str) -> str | None:
        return request.headers.get(name)

    def forwarded(self, request: web.Request) -> list[bytes]:
        return [line.encode("utf-8", "surrogateescape") for line in request.headers.getall("X-Forwarded-For", [])]

    def user(self, request: web.Request) -> object:
        return request.get(USER, request.get("user", UNAUTHENTICATED))

    def claims(self, request: web.Request) -> Any:
        return request.get(CLAIMS, request.get("claims", UNAUTHENTICATED))


class _Refused:
    """The common part of the exceptions of a refusal. Each is also an exception of Tidegate and one of aiohttp."""

    __str__ = RateLimited.__str__

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(*refusal.arguments)
        web.Response.__init__(self, body=refusal.body, status=refusal.status, headers=refusal.own_fields)  # type: ignore[arg-type]
        self.content_type = "application/problem+json"


class Refused(_Refused, RateLimited, web.HTTPException):
    """A refused request. A middleware may answer it: it is a RateLimited, and a web.HTTPException with its status."""


class StoreRefused(_Refused, StoreError, web.HTTPException):
    """A request that cannot be checked, because its store is missing and `on_store_error` is "raise"."""


class KeyRefused(_Refused, KeyInvalid, web.HTTPException):
    """A request with a key that its client has made unusable."""


class Tidegate(HandlerLimits[web.Application]):
    """Limits of an application of aiohttp.web.

    default: the policy of each handler without a limit. Each such handler has its own budget.
    application: the policy of all requests together, checked with the limits of the handler in one round trip.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application is cleaned up.
    enabled: False turns all limits off. Without it, the environment variable TIDEGATE_ENABLED decides.
    skip: a function of the request. If it returns true, the request is exempt from all limits.
    key, cost, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the default options of
    all limits.

    You can decorate handlers, classes of `web.View` and their methods with `limit`. The units of a "concurrency" limit
    are held until the last byte of the response, or until the client disconnects.
    """

    _adapter = _Adapter()
    _app_class, _app_name = web.Application, "aiohttp.web"

    def init_app(self, app: web.Application) -> None:
        """Limits an application from now on."""
        super().init_app(app)
        app.middlewares.append(self._check)
        app.on_response_prepare.append(self._announce)
        app.on_startup.append(self._verify_routes)
        app.on_cleanup.append(self._close)

    async def _verify_routes(self, app: web.Application) -> None:
        for route in app.router.routes():
            self._verify(route.handler)

    def _is_attached(self, arguments: tuple[Any, ...]) -> bool:
        # A method has its object first, which has the request.
        request = getattr(arguments[0], "request", arguments[-1]) if arguments else None
        return not isinstance(request, web.Request) or self in request.get(_LAYERS, ())

    def _check_decorator_order(self, view: Any, decorator: str) -> None:
        check_is_function(view, f"tg.{decorator}")
        if not (is_async(view) or (inspect.isclass(view) and issubclass(view, web.View))):
            raise ConfigError(
                f"@tg.{decorator} must stand above an async handler, a class of web.View or a method of one"
            )

    @web.middleware
    async def _check(self, request: web.Request, handler: Callable[[Any], Awaitable[Any]]) -> web.StreamResponse:
        request[_LAYERS] = (*request.get(_LAYERS, ()), self)
        self._refresh()
        match = request.match_info
        limits: tuple[BoundLimit, ...] = self._application
        if match.http_exception is None:
            view_class = match.handler if inspect.isclass(match.handler) else None
            path = getattr(match.route.resource, "canonical", "")
            limits = self._limits_of(match.route, match.handler, view_class, path, request.method)
        admission = await self._admit(request, limits) if self.enabled else None
        if isinstance(admission, Refusal):
            raise admission.one_of(Refused, StoreRefused, KeyRefused)(admission)
        if admission is None:
            return await handler(request)  # type: ignore[no-any-return]
        request[RATE_LIMIT], request[_ADMISSION] = admission.decision, admission
        if not admission.decision:
            given = await self._given(request, admission)
            if given is None:
                raise Refused(Refusal(admission))
            if given.status == 200:
                given.set_status(status(admission.decision))
            return given  # type: ignore[no-any-return]
        response: Any = None
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = error
            raise
        finally:
            # Another exception has no response yet.
            admission.release() if response is None else await self._end(request, response, admission)
        return response  # type: ignore[no-any-return]

    async def _end(self, request: web.Request, response: Any, admission: Admission) -> None:
        """Ends the work of a request, or makes the end of its body do so if that is still to be sent."""

        def end() -> Awaitable[None]:
            return run_steps_async(end_work((admission,), request, response), self.limiter)

        is_sent_later = isinstance(response, web.FileResponse) or isinstance(getattr(response, "body", None), Payload)
        if not is_sent_later:
            # A charge that goes back is not settled.
            await run_steps_async(refund((admission,), request, response), self.limiter)
            await end()
        elif admission.holds or admission.settles:
            # Without an end, such as with a client that disconnects, the hold ends with the request.
            write = response.write_eof

            async def write_eof(data: bytes = b"") -> None:
                await write(data)
                await end()

            response.write_eof = write_eof

    async def _announce(self, request: web.Request, response: web.StreamResponse) -> None:
        """Gives charges back, and adds the header fields, when a response begins."""
        admission: Admission | None = request.get(_ADMISSION)
        if admission is not None:
            await run_steps_async(refund((admission,), request, response), self.limiter)
            for name, value in admission.bound.headers.text(*admission.announced):
                if admission.decision or name not in response.headers:
                    response.headers.add(name, value)
