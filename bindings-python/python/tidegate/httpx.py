"""Paced clients of httpx: `pip install tidegate[httpx]`.

    from tidegate.httpx import PacedTransport

    client = httpx.Client(transport=PacedTransport(limiter, policy="5000/hour; 80/minute"))

A request waits for its turn, is sent, and what the response says of limits counts for all processes that share the
store of the limiter. docs/guides/outgoing.md explains it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from ._httpx import AsyncTransport, BlockingTransport

__all__ = ["AsyncPacedTransport", "PacedTransport"]


class PacedTransport(BlockingTransport, httpx.BaseTransport):
    """A transport for `httpx.Client`.

    - `policy`: a name, a notation, a Policy, a function of the request that returns one of these or None; None is no
      limit but what responses say.
    - `key`: a text, or a function of the request; by default its origin. `prefix` ("out:") stands before it. A redirect
      to another origin has that one as its key.
    - `cost`: units, numbers by their names, or a function of the request; 1 by default.
    - `settle`: a function of the response, called before its body is read: what the request has really cost, a
      `tidegate.outgoing.SettleReader` that reads the body while the caller does, or None.
    - `timeout`: the longest time that a request waits for its turns, 30 seconds by default; None is as long as it
      takes. Beyond it RateLimited is raised before anything is sent.
    - `retries`: how often a 429 or 503 that says a wait is sent again: of a method that is idempotent or a request
      with an Idempotency-Key, and no stream.
    - `learn`, `max_learned_wait`: whether the limits that responses name are kept, and the longest wait that is
      believed.
    - `margin`: how much the way to the service may differ from one request to the next, 0.05 seconds by default.
    - `priority`: a class of the policy's `priorities`, or a function of the request.
    - `on_wait`: called with the Decision and the seconds before a request waits.
    - `respond`: True makes a response of a refusal, with 429 and `x-should-retry: false`.
    - `transport`: what sends the requests; by default a `httpx.HTTPTransport` with the options `verify`, `cert`,
      `trust_env`, `http1`, `http2`, `limits`, `proxy`, `uds`, `local_address` and `socket_options`. Those of the
      client do not reach a transport.

    Each redirect is a call of its own, for its own origin.
    """

    _httpx: ClassVar[Any] = httpx


class AsyncPacedTransport(AsyncTransport, httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient` on asyncio, with the options of PacedTransport.

    A request that is cancelled while it waits gives its turn back.
    """

    _httpx: ClassVar[Any] = httpx
