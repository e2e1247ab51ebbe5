"""Limits for any ASGI application.

    from tidegate.asgi import TidegateMiddleware

    app = TidegateMiddleware(app, policy="100/minute", store="redis://127.0.0.1:6379/0")

Functions given as options get the scope; `on_denied` may return an ASGI application that answers. `user()` reads
`scope["user"]`, `claim()` the verified claims in `scope["state"]["claims"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._asgi import FACE, NAME, App, Exchange, Receive, Scope, Send
from ._tidegate import AsyncLimiter, Limiter, Policy
from .http import Guard, Key, Rule, choose_limiter, claim, client_ip, header, user

__all__ = ["TidegateMiddleware", "claim", "client_ip", "header", "user"]


class TidegateMiddleware:
    """Asks before the application is called; refused requests do not reach it.

    The limiter is `limiter`, or one made of `store` and the options of a limiter. A policy with a "concurrency" limit
    is held until the last byte of the answer, or until the client is gone.
    """

    def __init__(
        self,
        app: App,
        policy: str | Policy | Sequence[Any],
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        key: Key | Callable[..., Any] | None = None,
        cost: int | Callable[..., Any] = 1,
        skip: Callable[..., Any] | None = None,
        on_denied: Callable[..., Any] | None = None,
        headers: str = "both",
        refund_when: Callable[..., Any] | None = None,
        settle: Callable[..., Any] | None = None,
        methods: Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        rule = Rule(
            policy,
            key=key,
            cost=cost,
            skip=skip,
            on_denied=on_denied,
            headers=headers,
            refund_when=refund_when,
            settle=settle,
            methods=methods,
        )
        self.app = app
        self.limiter = choose_limiter(AsyncLimiter, limiter, store, options)
        self._guards = [Guard(rule, self.limiter, FACE)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        exchange = Exchange(send, self.limiter, scope)
        ticket = await exchange.ask(self._guards)
        try:
            if ticket is None:
                await self.app(scope, receive, send)
            elif ticket.denied:
                await exchange.refuse(ticket, receive)
            else:
                scope[NAME] = exchange
                await self.app(scope, receive, exchange.send)
        finally:
            await exchange.end()
