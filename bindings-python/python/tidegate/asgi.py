"""Limits for any ASGI application.

    from tidegate.asgi import TidegateMiddleware

    app = TidegateMiddleware(app, policy="100/minute", store="redis://127.0.0.1:6379/0")

Functions given as options get the scope; `on_denied` may return an ASGI application that answers. `user()` reads
`scope["user"]`, `claim()` the verified claims in `scope["state"]["claims"]`.
"""

from __future__ import annotations

from ._tidegate import AsyncLimiter
from .web.exchange import FACE, NAME, App, Exchange, Lifespan, Receive, Scope, Send
from .web.keys import claim, client_ip, header, user
from .web.layers import Around

__all__ = ["TidegateMiddleware", "claim", "client_ip", "header", "user"]


class TidegateMiddleware(Lifespan, Around[AsyncLimiter, App]):
    """Asks before the application is called; refused requests do not reach it.

    The limiter is `limiter`, or one made of `store` and the options of a limiter, which is closed when the application
    is shut down. A policy with a "concurrency" limit
    is held until the last byte of the answer, or until the client is gone.
    """

    _kind = AsyncLimiter
    _face = FACE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(self.app, scope, receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self._closed:
            self._open()
        exchange = Exchange(send, self.limiter, scope)
        ticket = await exchange.ask(self._guards)
        if ticket is None:
            await self.app(scope, receive, send if exchange.alone is None else exchange.send)
            return
        try:
            if ticket.denied:
                await exchange.refuse(ticket, receive)
            else:
                scope[NAME] = exchange
                await self.app(scope, receive, exchange.send)
        finally:
            await exchange.end()
