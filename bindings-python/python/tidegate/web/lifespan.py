"""The lifespan of ASGI applications: it ends the limiter that a layer has made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from .._tidegate import AsyncLimiter
from .layers import WebLayer

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Lifespan(WebLayer[AsyncLimiter]):
    """Closes the limiter that a layer has made when the last of its applications is shut down."""

    # An application may be started again, and tests call one without starting it: then a new limiter is made.
    _running_apps = 0
    _closed = False

    async def _run_lifespan(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the lifespan of an application, and observes its messages."""

        async def observe(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._reopen()
                self._running_apps += 1
            elif message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                self._running_apps -= 1
                if self._owns_limiter and self._running_apps == 0:
                    self._closed = True
                    await self.limiter.close()
            await send(message)

        await app(scope, receive, observe)

    def _reopen(self) -> None:
        if self._closed:
            self.limiter, self._closed = self._make(), False
            self._bind_anew()
