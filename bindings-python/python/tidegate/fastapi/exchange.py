"""One request to a FastAPI or Starlette application with a Tidegate."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from starlette._exception_handler import wrap_app_handling_exceptions
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.exceptions import WebSocketException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from .._shown import shown
from .._tidegate import Decision, status
from ..errors import ConfigError, KeyInvalid, RateLimited, StoreError
from ..web.admission import Admission, withdraw
from ..web.bound_limit import BoundLimit
from ..web.exchange import CLOSE_CODE, CLOSE_REASON, AsgiExchange, Message, Receive, Scope, Send, as_refusal
from ..web.keys import MissingPeer, UnusableKey
from ..web.refusal import Refusal
from ..web.steps import run_steps_async

try:
    from fastapi.exception_handlers import http_exception_handler
    from fastapi.exceptions import HTTPException
except ImportError:  # Starlette alone
    HTTPException = StarletteHTTPException  # type: ignore[misc, assignment]
    http_exception_handler = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Mapping

Raised = TypeVar("Raised", bound=Exception)

# Where ExceptionMiddleware leaves the handlers of its application: those of classes, and those of statuses.
HANDLERS = "starlette.exception_handlers"
# A websocket that can be answered with a status has this extension.
DENIAL = "websocket.http.response"


class Refused(RateLimited, HTTPException):
    """A refused request. Handlers of RateLimited, of HTTPException and of its status may answer it."""

    def __init__(self, admission: Admission, headers: Mapping[str, str]) -> None:
        RateLimited.__init__(self, admission.decision)
        refusal = Refusal(admission)
        self.status_code = refusal.status
        self.detail = HTTPStatus(refusal.status).phrase
        # What a handler of HTTPException passes on: not the type of a body that is not its own.
        self.headers = {**headers, "Cache-Control": "no-store"}
        self.body = refusal.body


class StoreRefused(StoreError, HTTPException):
    """A request that cannot be checked: its store is missing, and its policy says "raise"."""

    def __init__(self, error: StoreError) -> None:
        StoreError.__init__(self, error.message, error.code)
        refusal = Refusal.without_store(error)
        self.status_code = refusal.status
        self.detail = HTTPStatus(refusal.status).phrase
        self.headers = {name: value for name, value in refusal.fields if not name.startswith("Content-")}
        self.body = refusal.body

    def __str__(self) -> str:
        return self.message


class KeyRefused(KeyInvalid, HTTPException):
    """A request whose client has made its key unusable."""

    def __init__(self, error: KeyInvalid) -> None:
        KeyInvalid.__init__(self, error.message)
        refusal = Refusal(error)
        self.status_code = refusal.status
        self.detail = HTTPStatus(refusal.status).phrase
        self.headers = {"Cache-Control": "no-store"}
        self.body = refusal.body

    def __str__(self) -> str:
        return self.message


class Answered(RateLimited):
    """A refused request that `on_denied` has answered. No HTTPException, so no handler of a status comes first."""

    def __init__(self, admission: Admission, response: Any) -> None:
        super().__init__(admission.decision)
        self.response = response


async def refusal_of(exchange: AsgiExchange, admission: Admission) -> Exception:
    """The exception of a denied request."""
    exchange.refused = True
    scope, on_denied = exchange.scope, admission.bound.on_denied
    if scope["type"] == "http" and on_denied is not None:
        exchange.request = exchange.request or exchange.make_request()
        given = on_denied(exchange.request, admission.decision)
        if isinstance(given, Awaitable):
            given = await given
        if given is not None:
            if not callable(given):
                raise ConfigError(
                    f"on_denied returned {shown(given)}: it returns a Response, or None for the default one"
                )
            answer = as_refusal(given, status(admission.decision))
            return _with_handler(scope, Answered(admission, answer), _answer_given)
    if _answers(scope, RateLimited):
        return _with_handler(scope, Refused(admission, exchange.field_texts()), _answer)
    # 1008 is "policy violation".
    return WebSocketException(1008, "rate limited")


def store_refusal_of(exchange: AsgiExchange, error: StoreError) -> Exception:
    """The exception of a request whose store is missing."""
    exchange.refused = True
    if _answers(exchange.scope, StoreError):
        return _with_handler(exchange.scope, StoreRefused(error), _answer)
    # 1013 is "try again later".
    return WebSocketException(1013, error.code)


def key_refusal_of(exchange: AsgiExchange, error: KeyInvalid) -> Exception:
    """The exception of a request whose key no limiter takes."""
    exchange.refused = True
    if _answers(exchange.scope, KeyInvalid):
        return _with_handler(exchange.scope, KeyRefused(error), _answer)
    return WebSocketException(CLOSE_CODE, CLOSE_REASON)


def _answers(scope: Scope, kind: type[Exception]) -> bool:
    """Whether a response can be sent, or a handler knows the exception. Else the server can only close a websocket."""
    return scope["type"] == "http" or DENIAL in (scope.get("extensions") or ()) or _handler_of(scope, kind) is not None


def _with_handler(scope: Scope, error: Raised, ours: Any) -> Raised:
    """The exception, after the application has got a handler for its class: one of its own, or else ours."""
    handlers = scope.get(HANDLERS)
    kind = type(error)
    if handlers is not None and kind not in handlers[0]:
        # Of Answered only `on_denied` knows the answer.
        handlers[0][kind] = ours if kind is Answered else _handler_of(scope, kind) or ours
    return error


def _handler_of(scope: Scope, kind: type[Exception]) -> Any:
    """The application's own handler of a class, if it has one. Those that the frameworks bring answer any status."""
    handlers = scope[HANDLERS][0] if HANDLERS in scope else {}
    for one in kind.__mro__:
        handler = handlers.get(one)
        brought = handler is http_exception_handler or (
            getattr(handler, "__func__", None) is ExceptionMiddleware.http_exception
        )
        if handler is not None and not brought:
            return handler
    return None


async def _answer(connection: HTTPConnection, error: Refused | StoreRefused | KeyRefused) -> Response | None:
    body = b"" if connection.scope.get("method") == "HEAD" else error.body
    fields = {**(error.headers or {}), "Content-Length": str(len(error.body))}
    response = Response(body, error.status_code, fields, "application/problem+json")
    if isinstance(connection, WebSocket):
        # Older Starlettes do not send what is returned for a websocket, and do not know this answer.
        start = {"type": f"{DENIAL}.start", "status": error.status_code, "headers": response.raw_headers}
        await connection._send(start)
        await connection._send({"type": f"{DENIAL}.body", "body": body, "more_body": False})
        return None
    return response


async def _answer_given(_: HTTPConnection, error: Answered) -> Any:
    return error.response


def as_websocket_error(scope: Scope, error: MissingPeer) -> Exception:
    """What closes a websocket whose client has no address. Any other request gets the error itself."""
    return error if scope["type"] != "websocket" else WebSocketException(CLOSE_CODE, CLOSE_REASON)


async def respond_to(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Responds to an exception from before the endpoint as to one that the endpoint raises."""
    http = scope["type"] == "http"
    connection: Any = Request(scope, receive, send) if http else WebSocket(scope, receive, send)

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    try:
        await wrap_app_handling_exceptions(fail, connection)(scope, receive, send)
    finally:
        # The traceback refers to frames that refer to the exception: a cycle for the collector.
        error.__traceback__ = None


class StarletteExchange(AsgiExchange):
    """A request with the limits of its route and of its dependencies."""

    # Whether the limits of the route were checked, or those of a mounted application without routes.
    checked = False
    mounted = False
    # Whether the endpoint is exempt, also from the limits that dependencies bring.
    exempt = False
    # Whether the default was checked for a route that may have a dependency with a limit, which replaces it.
    checked_default = False
    # What each dependency was told: it asks once, however often a route has it.
    told: dict[Any, Decision | None] | None = None

    def __init__(self, send: Send, tidegate: Any, scope: Scope, receive: Receive) -> None:
        # The Tidegate of the application. Its module names this one, so its class is not named here.
        # All of `super().__init__`, whose call would cost every request.
        self._send = send
        self.limiter = tidegate.limiter
        self.scope = scope
        self.tidegate = tidegate
        self.receive = receive

    def make_request(self) -> HTTPConnection:
        if self.scope["type"] == "http":
            return Request(self.scope, self.receive, self.send)
        return WebSocket(self.scope, self.receive, self.send)

    def make_response(self, message: Message) -> Response:
        response = Response(status_code=message["status"])
        response.raw_headers = list(message.get("headers", ()))
        return response

    async def enforce(self, limits: Sequence[BoundLimit]) -> Decision | None:
        """Checks the limits; raises what answers a request that they deny. None: no limit applies to it."""
        try:
            admission = await self.check(limits)
        except MissingPeer as error:
            raise as_websocket_error(self.scope, error) from error
        except StoreError as error:
            raise store_refusal_of(self, error) from error
        except UnusableKey as error:
            raise key_refusal_of(self, error) from error
        if admission is None:
            # What few requests need has no admission of its own.
            return None if self.single is None else self.single[1]
        if not admission.denied:
            return admission.decision
        for other in self.admissions:
            if other is not admission:
                # A request that one limit denies costs nothing of the others.
                await run_steps_async(withdraw(other), self.limiter)
        raise await refusal_of(self, admission)

    async def withdraw(self, limits: Sequence[BoundLimit]) -> None:
        """Takes back what was admitted, and checks these limits instead."""
        self.use_admissions()
        admissions, self.admissions = self.admissions, ()
        for admission in admissions:
            await run_steps_async(withdraw(admission), self.limiter)
        if limits:
            await self.enforce(limits)

    def checking(self, limits: Sequence[BoundLimit], receive: Receive, send: Send) -> Send:
        """A `send` that checks limits before a response that no route makes: a 404, a redirect."""
        dropped = False

        async def checked(message: Message) -> None:
            nonlocal dropped
            if dropped:
                return
            if not self.checked:
                self.checked = True
                try:
                    await self.enforce(limits)
                except Exception as error:
                    dropped = True
                    await respond_to(error, self.scope, receive, send)
                    return
            await send(message)

        return checked
