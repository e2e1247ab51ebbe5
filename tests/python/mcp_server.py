"""An MCP server with limits, as a program: `mcp_server.py FRAMEWORK [PORT]`. Without a port it serves stdio."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tidegate.mcp import RateLimitMiddleware, decision


def make_server(framework: str, limits: RateLimitMiddleware) -> Any:
    """Makes a server of one of the two frameworks, with the same tools."""
    server: Any
    if framework == "mcp":
        from mcp.server import MCPServer

        server = MCPServer("tested", middleware=[limits], log_level="ERROR")
    else:
        from fastmcp import FastMCP

        server = FastMCP("tested", middleware=[limits])

    def search(text: str = "") -> str:
        found = decision()
        return f"{found.policy}: {found.remaining} left" if found else "no limit"

    async def render(seconds: float = 0.0) -> str:
        await asyncio.sleep(seconds)
        return "rendered"

    def fail() -> str:
        raise ValueError("this tool fails")

    def free() -> str:
        return search()

    for tool in (search, render, fail, free):
        server.tool()(tool)
    return server


def main(framework: str, port: str | None = None) -> None:
    tools = {"render": "concurrency 1", "free": None}
    limits = RateLimitMiddleware(
        "all", tools=tools, policies={"all": "fixed-window 2/hour"}, refund_when=lambda call, _: call.tool == "render"
    )
    server = make_server(framework, limits)
    if port is None:
        server.run("stdio", **({} if framework == "mcp" else {"show_banner": False}))
    elif framework == "mcp":
        server.run("streamable-http", host="127.0.0.1", port=int(port))
    else:
        server.run("http", host="127.0.0.1", port=int(port), show_banner=False, log_level="ERROR")


if __name__ == "__main__":
    main(*sys.argv[1:])
