"""`tidegate.mcp`: real clients of real servers over stdio and streamable HTTP, and the options in one process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="mcp needs Python 3.11")

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from harness.ports import free_port
from mcp_server import make_server
from tidegate import ConfigError, Limiter, ManualClock
from tidegate.mcp import REFUSED, RateLimitMiddleware, ToolCall, claim, session, user
from web_servers import end

FRAMEWORKS = ("mcp", "fastmcp")
SERVER = str(Path(__file__).with_name("mcp_server.py"))


@contextlib.contextmanager
def serving(framework: str, transport: str) -> Iterator[Any]:
    """Starts a server over HTTP. A client starts one over stdio itself. Yields the address for a client."""
    if transport == "stdio":
        yield stdio_client(StdioServerParameters(command=sys.executable, args=[SERVER, framework]))
        return
    port = free_port()
    process = subprocess.Popen([sys.executable, SERVER, framework, str(port)], start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while True:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        end(process)


async def text_of(called: Awaitable[Any]) -> str:
    """Returns the text of a tool's result."""
    result = await called
    return str(result.content[0].text)


async def refused(called: Awaitable[Any]) -> Any:
    """Returns the error of a refused call."""
    with pytest.raises(MCPError) as caught:
        await called
    assert caught.value.code == REFUSED
    return caught.value


# "auto" is the protocol of 2026, which has no sessions. "legacy" is the one before it.
@pytest.mark.parametrize(
    ("framework", "transport", "mode"),
    [("mcp", "stdio", "auto"), ("mcp", "http", "legacy"), ("fastmcp", "stdio", "legacy"), ("fastmcp", "http", "auto")],
)
@pytest.mark.filterwarnings("ignore:ping is removed")
def test_a_client_meets_its_limits(framework: str, transport: str, mode: str) -> None:
    async def main(address: Any) -> None:
        async with Client(address, mode=mode) as client:
            for _ in range(10):
                assert len((await client.list_tools()).tools) == 4
                assert (await text_of(client.call_tool("free"))) == "no limit"
            if mode == "legacy":
                await client.send_ping()
            slow, error = await while_held(client)
            assert error.data["policy"].startswith("concurrency 1") and error.data["retryAfter"] >= 1
            slow.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await slow
            left = await until(lambda: client.call_tool("render", {"seconds": 0}))
            assert left == "rendered"
            # The cancelled call stays charged.
            assert (await text_of(client.call_tool("search", {"text": "a"}))) == "all: 0 left"
            error = await refused(client.call_tool("search", {"text": "a"}))
            wait = error.data["retryAfter"]
            assert 3500 < wait <= 3600 and error.data["policy"] == "all"
            assert str(error) == f"The tool 'search' is called too often. Wait {wait} s, then repeat the call."
            assert len((await client.list_tools()).tools) == 4

    with serving(framework, transport) as address:
        asyncio.run(asyncio.wait_for(main(address), 120))


async def while_held(client: Client) -> tuple[asyncio.Task[Any], MCPError]:
    """Starts a slow call, and repeats another one until that is refused. Returns the slow call and the refusal."""
    slow = asyncio.create_task(client.call_tool("render", {"seconds": 3600}))
    while True:
        try:
            await client.call_tool("render", {"seconds": 0})
        except MCPError as error:
            return slow, error
        if slow.done():
            # The other call was first.
            assert isinstance(slow.exception(), MCPError)
            slow = asyncio.create_task(client.call_tool("render", {"seconds": 3600}))
        await asyncio.sleep(0.05)


async def until(call: Callable[[], Awaitable[Any]]) -> str:
    """Repeats a call until its hold is free: the server hears of a cancelled call a moment later."""
    for _ in range(600):
        try:
            return await text_of(call())
        except MCPError as error:
            assert error.code == REFUSED
            await asyncio.sleep(0.1)
    raise AssertionError("the hold was not given back")


def scope_of(address: str = "203.0.113.9", **more: Any) -> Any:
    """The scope of an HTTP request."""
    return {"type": "http", "client": (address, 4711), "server": ("test", 80), "headers": [], "state": {}, **more}


class Context:
    """The context of a message of the official SDK, as its server gives it to a middleware."""

    def __init__(self, tool: str, scope: Any = None, session_id: str | None = None, **arguments: Any) -> None:
        self.method, self.params = "tools/call", {"name": tool, "arguments": arguments}
        self.request = None if scope is None else type("Request", (), {"scope": scope})
        connection = type("Connection", (), {"session_id": session_id})
        self.session = type("Session", (), {"_connection": connection})


async def done(_: Any) -> Any:
    return {"isError": False}


def ask(limits: RateLimitMiddleware, *calls: Context) -> list[bool]:
    """Returns for each call if it was admitted."""

    async def main() -> list[bool]:
        answers = []
        for call in calls:
            try:
                answers.append((await limits(call, done)) == {"isError": False})
            except MCPError:
                answers.append(False)
        return answers

    return asyncio.run(main())


def test_clients_and_sessions_have_their_own_budgets() -> None:
    one, other = scope_of(), scope_of("203.0.113.10")
    by_address = RateLimitMiddleware("1/hour", store="memory://")
    assert ask(by_address, Context("a", one), Context("b", one), Context("a", other), Context("a")) == [1, 0, 1, 1]
    by_session = RateLimitMiddleware("1/hour", key=session())
    calls = [Context("a", one, "first"), Context("a", one, "second"), Context("a", other, "first")]
    assert ask(by_session, *calls) == [1, 1, 0]
    assert ask(by_session, Context("a", one), Context("a", one), Context("a", other)) == [1, 0, 1]


def test_a_client_with_a_token_is_known_by_it() -> None:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    def called(client: str, subject: str) -> Context:
        token = AccessToken(token="t", client_id=client, scopes=[], subject=subject, claims={"team": "blue"})
        return Context("a", scope_of(user=AuthenticatedUser(token)))

    by_user = RateLimitMiddleware("1/hour", key=user())
    assert ask(by_user, called("c1", "s1"), called("c1", "s2"), called("c2", "s1")) == [1, 0, 1]
    by_subject = RateLimitMiddleware("1/hour", key=claim("sub"))
    assert ask(by_subject, called("c1", "s1"), called("c1", "s2"), called("c2", "s1")) == [1, 1, 0]
    assert ask(RateLimitMiddleware("1/hour", key=claim("team")), called("c1", "s1"), called("c2", "s2")) == [1, 0]
    # Over stdio there is one client, which needs no token.
    assert ask(by_user, Context("a"), Context("a")) == [1, 0]
    with pytest.raises(ConfigError, match="token verifier"):
        ask(by_user, Context("a", scope_of()))


def test_a_tool_has_its_own_limit_beside_that_of_all() -> None:
    limits = RateLimitMiddleware("3/hour", tools={"dear": "1/hour", "free": None})
    calls = ["dear", "dear", "cheap", "unknown", "cheap", "free"]
    # The second call of `dear` is free, because all limits are charged or none.
    assert ask(limits, *map(Context, calls)) == [1, 0, 1, 1, 0, 1]
    only = RateLimitMiddleware(tools={"dear": "1/hour"})
    assert ask(only, Context("dear"), Context("dear"), Context("cheap"), Context("cheap")) == [1, 0, 1, 1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_options_get_the_call_and_the_result(framework: str) -> None:
    clock = ManualClock(1_700_000_000.0)
    limiter = Limiter(clock=clock, policies={"api": "10/hour"})
    seen: list[Any] = []

    def failed(call: ToolCall, result: Any) -> bool:
        seen.append((call.tool, dict(call.arguments), call.request))
        return isinstance(result, Exception) or bool(result["isError"] if isinstance(result, dict) else result.is_error)

    limits = RateLimitMiddleware(
        "api",
        limiter=limiter,
        key=lambda call: call.arguments.get("text", "k"),
        cost=lambda call: 4 if call.tool == "search" else 2,
        skip=lambda call: call.tool == "free",
        refund_when=failed,
        settle=lambda call, result: 3 if call.tool == "search" else None,
    )

    async def main() -> None:
        async with Client(_served(make_server(framework, limits))) as client:
            assert (await text_of(client.call_tool("search", {"text": "k"}))) == "api: 6 left"
            assert limiter.peek("api", "k").remaining == 7, "settled"
            assert (await client.call_tool("fail")).is_error
            assert limiter.peek("api", "k").remaining == 7, "given back"
            assert (await text_of(client.call_tool("free"))) == "no limit"
            assert (await text_of(client.call_tool("render"))) == "rendered"
            assert limiter.peek("api", "k").remaining == 5

    asyncio.run(main())
    assert seen == [("search", {"text": "k"}, None), ("fail", {}, None), ("render", {}, None)]


def _served(server: Any) -> Any:
    """The server that a client in this process calls: that inside of FastMCP."""
    return getattr(server, "_mcp_server", server)


def test_a_call_that_can_never_be_admitted_is_not_repeated() -> None:
    async def main(limits: RateLimitMiddleware) -> MCPError:
        error = await refused(limits(Context("big"), done))
        assert isinstance(error, MCPError)
        return error

    error = asyncio.run(main(RateLimitMiddleware("10/hour", cost=11)))
    assert str(error) == "The tool 'big' never admits a call like this one. Do not repeat it."
    assert error.data == {"retryAfter": None, "policy": "10/hour"}
    lost = {"store": "redis://127.0.0.1:1", "timeout": 0.1}
    for policy, code in (("raise", "store_unavailable"), ("closed", None)):
        error = asyncio.run(main(RateLimitMiddleware("10/hour", on_store_error=policy, **lost)))  # type: ignore[arg-type]
        assert error.data["retryAfter"] == 1 and error.data.get("code") == code and "ait 1 s" in str(error)
    error = asyncio.run(main(RateLimitMiddleware("10/hour", key=lambda call: "k" * 70_000)))
    assert error.data == {"code": "key_invalid"}


def test_on_denied_may_answer() -> None:
    limits = RateLimitMiddleware("1/hour", on_denied=lambda call, decision: {"isError": False, "wait": 1})

    async def main() -> Any:
        await limits(Context("a"), done)
        return await limits(Context("a"), done)

    assert asyncio.run(main()) == {"isError": False, "wait": 1}


def test_a_setting_without_effect_is_an_error() -> None:
    with pytest.raises(ConfigError, match="would limit no tool"):
        RateLimitMiddleware(tools={"free": None})
    with pytest.raises(TypeError, match="'methods', which is for HTTP"):
        RateLimitMiddleware("1/s", methods=["POST"])
    with pytest.raises(TypeError, match="no option 'tool': did you mean 'tools'"):
        RateLimitMiddleware("1/s", tool={})  # type: ignore[call-arg]
    assert ask(RateLimitMiddleware("1/hour", enabled=False), Context("a"), Context("a")) == [1, 1]
