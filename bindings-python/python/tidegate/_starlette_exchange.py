"""One request to a FastAPI or Starlette application with a Tidegate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from ._starlette_refusal import as_websocket_error, key_refusal_of, refusal_of, respond_to, store_refusal_of
from ._tidegate import Decision
from .errors import StoreError
from .web.admission import withdraw
from .web.bound_limit import BoundLimit
from .web.exchange import AsgiExchange
from .web.keys import MissingPeer, UnusableKey
from .web.lifespan import Message, Receive, Scope, Send
from .web.steps import run_steps_async


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
