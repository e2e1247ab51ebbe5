"""Limits for the tools of an MCP server: `pip install tidegate[mcp]`, or `tidegate[fastmcp]`.

    from mcp.server import MCPServer  # or: from fastmcp import FastMCP
    from tidegate.mcp import RateLimitMiddleware

    server = MCPServer("search", middleware=[RateLimitMiddleware("30/minute", tools={"render": "concurrency 2"})])

Each call of a tool is checked before the tool runs, over every transport. All other messages are free. Functions that
you give as options get the ToolCall. `refund_when` and `settle` also get the result of the tool, or the exception that
it raised. A refused call is an error of JSON-RPC. Its text tells a model how long to wait, and its data has
`retryAfter` in seconds.

A client over HTTP is known by its address, or with `user()` and `claim()` by its access token. A server that runs over
stdio has one client, whose address is 127.0.0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError

from ._shown import shortened
from ._tidegate import AsyncLimiter, Decision, Limiter, hashed
from .errors import ConfigError, StoreError
from .web.admission import Admission, admit, end_work, refund
from .web.exchange import ScopeAdapter
from .web.keys import UNAUTHENTICATED, Key, UnusableKey, claim, client_ip, fixed, header, user, with_fallback
from .web.layers import WebLayer
from .web.limit import BoundLimit, PolicyOption
from .web.options import LayerOptions
from .web.processes import warn_of_memory
from .web.refusal import KEY_DETAIL, STORE_WAIT
from .web.steps import awaited, run_steps_async

if TYPE_CHECKING:
    from fastmcp.server.middleware import Middleware
    from typing_extensions import Unpack
else:
    # FastMCP calls an object with the methods of its Middleware. Importing it would cost servers without it a second.
    Middleware = object

__all__ = [
    "REFUSED", "RateLimitMiddleware", "ToolCall", "claim", "client_ip", "decision", "fixed", "header", "session",
    "user",
]  # fmt: skip

# The code of JSON-RPC for a refused call.
REFUSED = -32029
# The options of limits that belong to HTTP.
_OF_HTTP = ("headers", "hold_until", "methods", "per_method")
# The scope of a client that comes without HTTP, such as over stdio.
_LOCAL: dict[str, Any] = {"client": ("127.0.0.1", 0), "headers": (), "user": None, "state": {}}

_DECISION: ContextVar[Decision | None] = ContextVar("tidegate.mcp", default=None)


def decision() -> Decision | None:
    """Returns the Decision about the call of the running tool, or None."""
    return _DECISION.get()


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool, as the functions in options get it. `context` is the request context of the framework."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None

    @property
    def request(self) -> Any:
        """The HTTP request of Starlette, or None over stdio."""
        return getattr(self.context, "request", None)

    @property
    def session_id(self) -> str | None:
        """The id that the server gave to the session, or None. Protocols from 2026 on have no sessions."""
        connection = getattr(getattr(self.context, "session", None), "_connection", None)
        found: str | None = getattr(connection, "session_id", None)
        return found

    @property
    def scope(self) -> Any:
        """The scope of the HTTP request. The key helpers read it."""
        return _LOCAL if self.request is None else self.request.scope


class _Adapter(ScopeAdapter):
    authentication = "give the server a token verifier"

    def claims(self, request: ToolCall) -> Any:
        caller = self.user(request)
        token = getattr(caller, "access_token", None)
        if token is None:
            return UNAUTHENTICATED if caller is UNAUTHENTICATED else None
        return {"client_id": token.client_id, "sub": token.subject, **(token.claims or {})}


def session(*, otherwise: Any = None) -> Key:
    """The session of a call, hashed before it is stored. A call without one has the key `otherwise`, or its address."""

    def read(_: Any, call: ToolCall) -> str | None:
        return None if call.session_id is None else hashed(call.session_id)

    return with_fallback("session()", otherwise, read, plain=False)


class RateLimitMiddleware(WebLayer[AsyncLimiter], Middleware):
    """Checks each call of a tool before the tool runs. It is a middleware of MCPServer and of FastMCP.

    policy: the policy of all tools together. None limits only the tools in `tools`.
    tools: the policies of single tools by their names, asked together with `policy`. None exempts a tool.
    limiter: the limiter. Without it one is made from `store` and the options of a limiter (policies, prefix, timeout,
    on_store_error, deny_cache, clock).
    key, cost, skip, on_denied, refund_when, settle, meta, priority: the options of the limits. `on_denied` may return
    the result of a tool, which answers in place of the error.
    enabled: False turns the middleware off. Without it, the environment variable TIDEGATE_ENABLED decides.

    The units of a "concurrency" limit are held while the tool runs, also if the client cancels the call.
    """

    _limiter_class = AsyncLimiter
    _adapter = _Adapter()
    _own_options = ("limiter", "store", "tools")

    def __init__(
        self,
        policy: PolicyOption | None = None,
        *,
        tools: Mapping[str, PolicyOption | None] | None = None,
        limiter: Limiter | AsyncLimiter | None = None,
        store: str | Iterable[str] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        for name in options:
            if name in _OF_HTTP:
                raise TypeError(f"RateLimitMiddleware has no option {name!r}, which is for HTTP: leave it out")
        self._configure(limiter, store, dict(options))
        own = dict(tools or {})
        if policy is None and all(one is None for one in own.values()):
            raise ConfigError("RateLimitMiddleware would limit no tool: give it a policy, or policies in tools")
        self._declared_application = None if policy is None else self._declare(policy)
        self._declared_tools = {name: None if one is None else self._declare(one) for name, one in own.items()}
        self._bind_anew()
        if self.enabled:
            warn_of_memory(self.limiter)

    def _bind_anew(self) -> None:
        super()._bind_anew()
        self._limits_by_tool: dict[str, tuple[BoundLimit, ...]] = {
            name: () if declared is None else (self._bind(declared, name), *self._application)
            for name, declared in self._declared_tools.items()
        }

    async def check_resource_access(self, context: Any) -> None:
        """FastMCP asks this before a resource is read, which no limit counts."""

    async def __call__(self, *given: Any, **_: Any) -> Any:
        """Serves a message. The two frameworks name the arguments differently, and pass them by position."""
        context, call_next = given
        call = _call_of(context)
        self._refresh()
        limits = () if call is None or not self.enabled else self._limits_by_tool.get(call.tool, self._application)
        if call is None or not limits:
            return await call_next(context)
        try:
            admission = await run_steps_async(admit(limits, call, None), self.limiter)
        except StoreError as error:
            text = f"The limits of tools cannot be checked now. Wait {STORE_WAIT} s, then repeat the call."
            raise MCPError(REFUSED, text, {"retryAfter": STORE_WAIT, "code": error.code}) from error
        except UnusableKey as error:
            raise MCPError(REFUSED, KEY_DETAIL, {"code": error.code}) from error
        if admission is None:
            return await call_next(context)
        if not admission.decision:
            return await self._refuse(admission, call)
        outcome: Any = None
        token = _DECISION.set(admission.decision)
        try:
            outcome = await call_next(context)
        except Exception as error:
            outcome = error
            raise
        finally:
            _DECISION.reset(token)
            # A cancelled call cannot wait for the store.
            admission.release()
            if outcome is not None:
                await run_steps_async(refund((admission,), call, outcome), self.limiter)
                await run_steps_async(end_work((admission,), call, outcome), self.limiter)
        return outcome

    async def _refuse(self, admission: Admission, call: ToolCall) -> Any:
        on_denied = admission.bound.on_denied
        if on_denied is not None:
            answer = await run_steps_async(awaited(on_denied(call, admission.decision)), self.limiter)
            if answer is not None:
                return answer
        denied, tool = admission.decision, shortened(call.tool)
        if denied.retry_after is None and not denied.unavailable:
            text = f"The tool {tool} never admits a call like this one. Do not repeat it."
            raise MCPError(REFUSED, text, {"retryAfter": None, "policy": denied.policy})
        seconds = max(1, math.ceil(denied.retry_after or STORE_WAIT))
        text = f"The tool {tool} is called too often. Wait {seconds} s, then repeat the call."
        raise MCPError(REFUSED, text, {"retryAfter": seconds, "policy": denied.policy})


def _call_of(context: Any) -> ToolCall | None:
    """Returns the call of a tool that a message asks for, or None."""
    if context.method != "tools/call":
        return None
    if not hasattr(context, "fastmcp_context"):
        message = context.params or {}
        return ToolCall(str(message.get("name")), message.get("arguments") or {}, context)
    if not hasattr(context.message, "arguments"):
        # A message that FastMCP has refused already.
        return None
    inner = context.fastmcp_context
    return ToolCall(context.message.name, context.message.arguments or {}, inner and inner.request_context)
