"""Paced clients of httpx2: `pip install tidegate[httpx2]`.

    from tidegate.httpx2 import PacedTransport

    client = httpx2.Client(transport=PacedTransport(limiter, policy="5000/hour; 80/minute"))

A request waits for its turn and is sent. The limits that its response announces count for all processes that share the
store of the limiter. docs/guides/outgoing.md explains it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import httpx2

from ._httpx import AsyncTransport, BlockingTransport

__all__ = ["AsyncPacedTransport", "PacedTransport"]


class PacedTransport(BlockingTransport, httpx2.BaseTransport):
    """A transport for `httpx2.Client`, with the options of `tidegate.httpx.PacedTransport`. By default a
    `httpx2.HTTPTransport` sends the requests."""

    _httpx: ClassVar[Any] = httpx2


class AsyncPacedTransport(AsyncTransport, httpx2.AsyncBaseTransport):
    """A transport for `httpx2.AsyncClient` on asyncio, with the options of PacedTransport.

    A request that is cancelled while it waits gives its turn back.
    """

    _httpx: ClassVar[Any] = httpx2
