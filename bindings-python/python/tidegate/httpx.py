"""Paced clients of httpx: `pip install tidegate[httpx]`.

    from tidegate.httpx import PacedTransport

    client = httpx.Client(transport=PacedTransport(limiter, policy="5000/hour; 80/minute"))

A request waits for its turn and is sent. The limits that its response announces count for all processes that share the
store of the limiter. docs/guides/outgoing.md explains it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from ._httpx import AsyncTransport, BlockingTransport

__all__ = ["AsyncPacedTransport", "PacedTransport"]


class PacedTransport(BlockingTransport, httpx.BaseTransport):
    """A transport for `httpx.Client`.

    - `policy`: a name, a notation, a Policy, or a function of the request that returns one of these or None. With None,
      only the limits that responses announce count.
    - `key`: a text, or a function of the request. The default is its origin. `prefix` ("out:") stands before it. A
      redirect to another origin has that origin as its key.
    - `cost`: units, numbers by their names, or a function of the request. The default is 1.
    - `settle`: a function of the response, called before its body is read. It returns the actual cost, a
      `tidegate.outgoing.SettleReader` that reads the body while the caller does, or None.
    - `timeout`: the longest time that a request waits for its turns, 30 seconds by default. None waits as long as it
      takes. Beyond it RateLimited is raised before anything is sent.
    - `retries`: how often a request is sent again after a 429 or 503 that announces a wait. This needs an idempotent
      method or an Idempotency-Key, and a body that is not a stream.
    - `learn`: True learns the limits that responses announce. `max_learned_wait`: the longest announced wait that is
      believed.
    - `margin`: how much the travel time to the service may differ between requests, 0.05 seconds by default.
    - `priority`: a class of the policy's `priorities`, or a function of the request.
    - `on_wait`: called before a request waits, with the Decision and the seconds.
    - `respond`: True turns a refusal into a response with 429 and `x-should-retry: false`.
    - `transport`: the transport that sends the requests. The default is a `httpx.HTTPTransport` with the options
      `verify`, `cert`, `trust_env`, `http1`, `http2`, `limits`, `proxy`, `uds`, `local_address` and `socket_options`.
      Those of the client do not reach a transport.

    Each redirect is a separate call to its own origin.
    """

    _httpx: ClassVar[Any] = httpx


class AsyncPacedTransport(AsyncTransport, httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient` on asyncio, with the options of PacedTransport.

    A request that is cancelled while it waits gives its turn back.
    """

    _httpx: ClassVar[Any] = httpx
