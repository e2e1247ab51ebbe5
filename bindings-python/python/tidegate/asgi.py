"""Limits for any ASGI application.

    from tidegate.asgi import TidegateMiddleware

    app = TidegateMiddleware(app, policy="100/minute", store="redis://127.0.0.1:6379/0")

You find the Decision in `scope["state"]["rate_limit"]`, which Starlette calls `request.state.rate_limit`, and in
`scope["tidegate.decision"]`. Functions that you give as options get the scope. `on_denied` may return an ASGI
application that answers. `user()` reads `scope["user"]` or `scope["state"]["user"]`, and `claim()` reads the verified
claims in `scope["state"]["claims"]`. The middleware that sets them stands outside this one. So does a CORSMiddleware,
which adds its header fields to refusals and answers preflights before they are counted.
"""

from __future__ import annotations

from ._tidegate import AsyncLimiter
from .errors import StoreError
from .web.exchange import ADAPTER, App, AsgiExchange, Lifespan, Receive, Scope, Send
from .web.keys import MissingPeer, UnusableKey, claim, client_ip, fixed, header, user
from .web.layers import AppLimits
from .web.refusal import CLOSE_CODE, CLOSE_REASON, Refusal

__all__ = ["TidegateMiddleware", "claim", "client_ip", "fixed", "header", "user"]


class TidegateMiddleware(Lifespan, AppLimits[AsyncLimiter, App]):
    """Checks each request before the application is called. Denied requests do not reach it.

    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock), and closed when the application shuts down.
    key, cost, skip, on_denied, headers, refund_when, settle, hold_until, meta, methods, per_method: the options of the
    limit.
    enabled: False turns the middleware off. Without it, the environment variable TIDEGATE_ENABLED decides.

    The units of a "concurrency" limit are held until the last byte of the response, or until the client disconnects.
    """

    _limiter_class = AsyncLimiter
    _adapter = ADAPTER

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (unlimited := self._unlimited(self.app, scope, receive, send)) is not None:
            await unlimited
            return
        if not self.enabled:
            await self.app(scope, receive, send)
            return
        exchange = AsgiExchange(self, scope, receive, send)
        try:
            admission = await exchange.check(self._application)
        except MissingPeer:
            if scope["type"] != "websocket":
                raise
            await send({"type": "websocket.close", "code": CLOSE_CODE, "reason": CLOSE_REASON})
        except (StoreError, UnusableKey) as error:
            await exchange.respond(Refusal(error))
        else:
            try:
                if admission is None or admission.decision:
                    await self.app(scope, receive, send if admission is None else exchange.send)
                elif (answer := await exchange.answer_given(admission)) is not None:
                    await answer(scope, receive, exchange.send)
                else:
                    await exchange.respond(Refusal(admission))
            finally:
                if exchange.ends_with_body:
                    await exchange.end_handler()
