"""One request to an ASGI application and the messages of its response."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from .._shown import shown
from .._tidegate import AsyncLimiter, Decision, Headers, Policy, status
from .._tracing import TRACED
from ..errors import ConfigError, KeyInvalid, StoreError
from .admission import DECISION, Admission, Known, ResponseStart, admit, end_work, failed, gathered, refund
from .keys import UNAUTHENTICATED
from .layers import WebLayer
from .limit import RESPONSE, BoundLimit
from .refusal import Refusal
from .steps import run_steps_async

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Lifespan(WebLayer[AsyncLimiter]):
    """Closes the limiter that a layer has made when the last of its applications shuts down."""

    # An application may start again, and tests call one without starting it. Then a new limiter is made.
    _running_apps = 0
    _closed = False

    def _unlimited(self, app: App, scope: Scope, receive: Receive, send: Send) -> Awaitable[None] | None:
        """Serves a scope that is no request. Returns None for a request."""
        if scope["type"] == "lifespan":
            return self._run_lifespan(app, scope, receive, send)
        if scope["type"] not in ("http", "websocket"):
            return app(scope, receive, send)
        if self._closed:
            self._reopen()
        self._refresh()
        return None

    async def _run_lifespan(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the lifespan of an application, and observes its messages."""

        async def observe(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._started()
                self._reopen()
                self._running_apps += 1
            elif message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                self._running_apps -= 1
                if self._owns_limiter and self._running_apps == 0:
                    self._closed = True
                    await self.limiter.close()
            await send(message)

        await app(scope, receive, observe)

    def _started(self) -> None:
        """Called when an application is about to serve."""

    def _reopen(self) -> None:
        if self._closed:
            self.limiter, self._closed = self._make(), False
            self._bind_anew()


# The key under which a scope carries its exchange.
NAME = "tidegate"
# The key under which the state of a scope carries the Decision.
STATE = "rate_limit"


# A websocket that can be answered with a status has this extension.
DENIAL = "websocket.http.response"


def is_answerable(scope: Scope) -> bool:
    """True if a request can be answered with a status. The server can only close other websockets."""
    return scope["type"] == "http" or DENIAL in (scope.get("extensions") or ())


def as_refusal(app: App, status: int) -> App:
    """Returns an ASGI application that answers a refused request. It replaces 200 by the status of the refusal."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_refusal(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "status": status}
            await send(message)

        await app(scope, receive, send_refusal)

    return answer


class AsgiExchange:
    """A request and its response. The messages of the response pass through `send`, which adds the header fields."""

    # The values that `on_denied` may return, for errors.
    answer = "an ASGI application, or None for the default"

    # The framework's response. It is made when a function of the user needs it.
    response: Any = None
    # The admissions of the limits of the request, in the order in which they were checked.
    admissions: Sequence[Admission] = ()
    # True if a refund or a settlement waits for the response.
    begins_with_steps = False
    # True if a hold or a settlement waits for the last byte.
    ends_with_body = False
    # True if the response is a refusal, which may bring its header fields.
    refused = False

    def __init__(self, layer: Lifespan, scope: Scope, receive: Receive, send: Send) -> None:
        self.layer, self.limiter = layer, layer.limiter
        self.scope, self.receive, self._send = scope, receive, send

    @functools.cached_property
    def request(self) -> Any:
        """The framework's request."""
        return self.scope

    def make_response(self, message: Message) -> Any:
        """Makes the framework's response from the first message."""
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", ())]
        return ResponseStart(message["status"], fields)

    async def check(self, limits: Sequence[BoundLimit]) -> Admission | None:
        """Checks the limits. Returns None if no limit applies to the request."""
        bound, limiter, scope = limits[0], self.limiter, self.scope
        admission: Admission | None = None
        known: Known | None = None
        if bound.prepared and len(limits) == 1 and id(limiter) not in TRACED:
            # A request of the framework is made only for functions that read it.
            identity, cost, known = gathered(bound, self if bound.is_plain else self.request)
            if identity:
                try:
                    answer = bound.prepared.check_async(limiter, identity, cost)
                    decision: Decision = answer if isinstance(answer, Decision) else await answer
                except (StoreError, KeyInvalid) as error:
                    raise failed(error, bound, bound.entries) from error.__cause__
                admission = Admission(decision, bound)
        if admission is None:
            admission = await run_steps_async(admit(limits, self.request, scope.get("method"), known), limiter)
            if admission is None:
                return None
            self.begins_with_steps |= admission.refunds or admission.settles
            self.ends_with_body |= bool(admission.holds) or admission.settles
        self.admissions = (*self.admissions, admission)
        # For the application, where Starlette's `request.state` reads it too.
        scope[DECISION] = scope.setdefault("state", {})[STATE] = admission.decision
        return admission

    def announced(self) -> tuple[Headers, Sequence[Policy | Decision]]:
        """Returns the choice of header fields, and the policies and Decisions that they announce."""
        admissions = self.admissions
        headers = next((one for one in admissions if not one.decision), admissions[0]).bound.headers
        return headers, [one for admission in admissions for one in admission.announced]

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Returns the header fields that announce the limits."""
        if len(self.admissions) == 1:
            only = self.admissions[0]
            return only.bound.headers.raw(*only.announced)
        headers, announced = self.announced()
        return headers.raw(*announced)

    def add_fields(self, message: Message) -> None:
        """Adds the header fields to the first message of a response. A refusal may have some of them already."""
        given, fields = message.get("headers", ()), self.fields()
        if self.refused:
            names = {name.lower() for name, _ in given}
            fields = [field for field in fields if field[0] not in names]
        message["headers"] = [*given, *fields]

    def send(self, message: Message) -> Awaitable[None]:
        """Sends a message of the response. It is no coroutine itself, which would cost every message a frame."""
        kind = message["type"]
        if kind == "http.response.start":
            if self.begins_with_steps:
                return self._start(message)
            if self.admissions:
                self.add_fields(message)
        elif kind == "http.response.body":
            if self.ends_with_body and not message.get("more_body"):
                # Before the last byte, not after it: a client that has the whole response may send the next request.
                return self._finish(message)
        elif kind == "websocket.close":
            return self._finish(message)
        elif kind == "websocket.accept" and self.admissions:
            message = {**message, "headers": [*message.get("headers", ()), *self.fields()]}
        return self._send(message)

    async def _finish(self, message: Message) -> None:
        await self.end_response()
        await self._send(message)

    async def _start(self, message: Message) -> None:
        self.response = self.response or self.make_response(message)
        await run_steps_async(refund(self.admissions, self.request, self.response), self.limiter)
        self.add_fields(message)
        await self._send(message)

    async def end_handler(self) -> None:
        """Ends the response and releases all holds, because the application has returned."""
        await self.end_response()
        for admission in self.admissions:
            admission.release()

    async def end_response(self) -> None:
        """Gives back the units that are held until the end of the response, and settles the cost of the work."""
        if self.ends_with_body:
            await run_steps_async(end_work(self.admissions, self.request, self.response, RESPONSE), self.limiter)

    async def answer_given(self, admission: Admission) -> App | None:
        """Returns the answer of `on_denied` to a denied request, or None for the default."""
        on_denied = admission.bound.on_denied
        if on_denied is None or self.scope["type"] != "http":
            return None
        given = on_denied(self.request, admission.decision)
        if isinstance(given, Awaitable):
            given = await given
        if given is None or callable(given):
            return None if given is None else as_refusal(given, status(admission.decision))
        raise ConfigError(f"on_denied returned {shown(given)}: it must return {self.answer}")

    async def respond(self, refusal: Refusal) -> None:
        """Responds with a Refusal, or closes a websocket."""
        scope = self.scope
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.fields]
        if not is_answerable(scope):
            # The server makes a 403 of it. The code is for servers that can send it.
            await self._send({"type": "websocket.close", "code": refusal.close_code, "reason": "rate limited"})
            return
        kind = "http.response"
        if scope["type"] == "websocket":
            kind = DENIAL
            if self.admissions:
                headers.extend(self.fields())
        await self.send({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
        body = b"" if scope.get("method") == "HEAD" else refusal.body
        await self.send({"type": f"{kind}.body", "body": body, "more_body": False})


def _scope_of(request: Any) -> Any:
    """Returns the scope of a request, of an exchange, or the scope itself."""
    return getattr(request, "scope", request)


class ScopeAdapter:
    """Reads a scope, as a RequestAdapter."""

    authentication = (
        "middleware outside the limit sets scope['user'] (request.user) or request.state.user, and for claims "
        "request.state.claims. Where a dependency authenticates, it sets request.state.user or request.state.claims, "
        "to None for an anonymous request, and Depends(RateLimit(…)) stands after it: @tg.limit and defaults are "
        "checked before all dependencies"
    )

    def peer(self, request: Any) -> str | None:
        client = _scope_of(request).get("client")
        return client[0] if client else None

    def over_unix(self, request: Any) -> bool:
        # A socket has a path and no port. uvicorn gives (path, None), gunicorn the first two characters of the path.
        server = _scope_of(request).get("server")
        return server is not None and not (len(server) > 1 and isinstance(server[1], int))

    def header(self, request: Any, name: str) -> str | None:
        wanted = name.lower().encode("latin-1")
        for field, value in _scope_of(request)["headers"]:
            if field == wanted:
                found: str = value.decode("latin-1")
                return found
        return None

    def forwarded(self, request: Any) -> list[bytes]:
        return [value for field, value in _scope_of(request)["headers"] if field == b"x-forwarded-for"]

    def user(self, request: Any) -> object:
        scope = _scope_of(request)
        if "user" in scope:
            return scope["user"]
        return (scope.get("state") or {}).get("user", UNAUTHENTICATED)

    def claims(self, request: Any) -> Any:
        return (_scope_of(request).get("state") or {}).get("claims", UNAUTHENTICATED)


ADAPTER = ScopeAdapter()
