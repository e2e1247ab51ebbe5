"""What every ASGI layer shares: one request on its way, and the messages of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from .._tidegate import AsyncLimiter, Decision, Desk, Headers
from .admission import Ticket, admit, refund, settle
from .answer import Answer
from .guard import Guard
from .layers import Layer
from .steps import arun

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

# Where a scope carries its exchange.
NAME = "tidegate"


class Lifespan(Layer[AsyncLimiter]):
    """Closes the limiter that a layer has made when what it limits is shut down."""

    # How many of its applications run, and whether the limiter was closed: an application may be started again, and
    # tests call one without starting it.
    _running = 0
    _closed = False

    async def _live(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on the messages of a lifespan."""

        async def passing(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._open()
                self._running += 1
            elif message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                self._running -= 1
                if self._owns and self._running == 0:
                    self._closed = True
                    await self.limiter.close()
            await send(message)

        await app(scope, receive, passing)

    def _open(self) -> None:
        if self._closed:
            self.limiter, self._closed = self._make(), False


class Response:
    """What is known of an answer when it begins, for frameworks without a class of their own."""

    __slots__ = ("headers", "status_code")

    def __init__(self, message: Message) -> None:
        self.status_code: int = message["status"]
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message.get("headers", ())
        }


class Exchange:
    """One request: whom it was charged to, and its answer, which passes through here."""

    # What functions of the request get; made when there are any.
    request: Any = None
    response: Any = None
    # The answer tells of these, or of the one Decision that a desk has made: few requests need more.
    tickets: Sequence[Ticket] = ()
    alone: tuple[Guard, Decision] | None = None
    # Whether something is to be done before the last byte.
    closing = False

    def __init__(self, send: Send, limiter: AsyncLimiter, scope: Scope) -> None:
        self._send = send
        self.limiter = limiter
        self.scope = scope

    def make_request(self) -> Any:
        """The framework's request."""
        return self.scope

    def make_response(self, message: Message) -> Any:
        """The framework's response, as far as it is known."""
        return Response(message)

    async def ask(self, guards: Sequence[Guard]) -> Ticket | None:
        """Asks; the answer will tell about it. None: it may go, and there is nothing to do later."""
        guard = guards[0]
        if guard.desk is not None and len(guards) == 1 and self.alone is None and not self.tickets:
            decision = await self.decide(guard, guard.desk)
            if decision:
                self.alone = (guard, decision)
                return None
            ticket: Ticket | None = Ticket(decision, guard, None)
        else:
            self.unfold()
            self.request = self.request or self.make_request()
            ticket = await arun(admit(guards, self.request, self.scope.get("method")), self.limiter)
        if ticket is not None:
            self.tickets = [*self.tickets, ticket]
            if ticket.holds or ticket.settles:
                self.closing = True
        return ticket

    async def decide(self, guard: Guard, desk: Desk) -> Decision:
        """The same as `admit` of one guard that has a desk, without its detours."""
        who = guard.who(self)
        if not who:
            # A peer without an address, which is worth a word.
            entry = guard.entry
            return await self.limiter.check(entry.policy, entry.prefix + entry.key(self), entry.cost)
        told = desk.post(self.limiter, who)
        return told if isinstance(told, Decision) else await told

    def unfold(self) -> None:
        """Makes a ticket of the one Decision: there will be several."""
        if self.alone is not None:
            guard, decision = self.alone
            self.alone, self.tickets = None, [Ticket(decision, guard, None)]

    def fields(self) -> list[tuple[bytes, bytes]]:
        """What the answer says about the limits."""
        if self.alone is not None:
            guard, decision = self.alone
            return guard.headers.raw(decision)
        tickets = self.tickets
        if len(tickets) == 1:
            return tickets[0].guard.headers.raw(*tickets[0].decisions)
        headers: Headers = next((one for one in tickets if one.denied), tickets[0]).guard.headers
        return headers.raw(*(decision for ticket in tickets for decision in ticket.decisions))

    def send(self, message: Message) -> Awaitable[None]:
        """Sends a message of the answer. Not async itself: what has nothing to wait for costs nothing here."""
        kind = message["type"]
        if kind == "http.response.start":
            if self.alone is not None:
                guard, decision = self.alone
                message["headers"] = [*message.get("headers", ()), *guard.headers.raw(decision)]
            elif tickets := self.tickets:
                if len(tickets) > 1 or tickets[0].refunds or tickets[0].settles:
                    return self._start(message)
                message["headers"] = [*message.get("headers", ()), *self.fields()]
        elif kind == "http.response.body":
            if self.closing and not message.get("more_body"):
                # Before the last byte and not after it: whoever has the whole answer may come again.
                return self._last(message)
        elif kind == "websocket.close":
            return self._last(message)
        elif kind == "websocket.accept" and (self.alone or self.tickets):
            message = {**message, "headers": [*message.get("headers", ()), *self.fields()]}
        return self._send(message)

    async def _last(self, message: Message) -> None:
        await self.end()
        await self._send(message)

    async def _start(self, message: Message) -> None:
        for ticket in self.tickets:
            if ticket.refunds or ticket.settles:
                self.request = self.request or self.make_request()
                self.response = self.response or self.make_response(message)
                await arun(refund(ticket, self.request, self.response), self.limiter)
        message["headers"] = [*message.get("headers", ()), *self.fields()]
        await self._send(message)

    async def end(self) -> None:
        """Gives back what is held, and charges what the work came to."""
        for ticket in self.tickets:
            ticket.release()
            if ticket.settles:
                ticket.settles = False
                self.request = self.request or self.make_request()
                await arun(settle(ticket, self.request, self.response), self.limiter)

    async def refuse(self, ticket: Ticket, receive: Receive) -> None:
        """The answer to a refused request: what `on_denied` returns, which answers as an ASGI application, or ours."""
        scope, on_denied = self.scope, ticket.guard.on_denied
        if on_denied is not None and scope["type"] == "http":
            self.request = self.request or self.make_request()
            given = on_denied(self.request, ticket.decision)
            if isinstance(given, Awaitable):
                given = await given
            if given is not None:
                await given(scope, receive, self.send)
                return
        answer = Answer(ticket)
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.fields]
        kind = "http.response"
        if scope["type"] == "websocket":
            if "websocket.http.response" not in scope.get("extensions", ()):
                # The server makes a 403 of it; 1008 is "policy violation" for those that can say it.
                await self._send({"type": "websocket.close", "code": 1008, "reason": "rate limited"})
                return
            kind = "websocket.http.response"
            headers.extend(self.fields())
        await self.send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
        body = b"" if scope.get("method") == "HEAD" else answer.body
        await self.send({"type": f"{kind}.body", "body": body, "more_body": False})


def _scope(request: Any) -> Any:
    """What is asked for may be a scope, or have one: a request of Starlette, an exchange."""
    return getattr(request, "scope", request)


class ScopeFace:
    """How a scope is read."""

    def peer(self, request: Any) -> str | None:
        client = _scope(request).get("client")
        return client[0] if client else None

    def header(self, request: Any, name: str) -> str | None:
        wanted = name.lower().encode("latin-1")
        for field, value in _scope(request)["headers"]:
            if field == wanted:
                found: str = value.decode("latin-1")
                return found
        return None

    def forwarded(self, request: Any) -> list[bytes]:
        return [value for field, value in _scope(request)["headers"] if field == b"x-forwarded-for"]

    def user(self, request: Any) -> object:
        return _scope(request).get("user")

    def claims(self, request: Any) -> Any:
        return (_scope(request).get("state") or {}).get("claims")


FACE = ScopeFace()
