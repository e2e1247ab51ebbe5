"""The keyword options of limits and of the layers that have limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from .._options import LimiterOptions
from .keys import Key


class LimitOptions(TypedDict, total=False):
    """The options of one limit. Given to a layer, they are the defaults of its limits."""

    # Makes the key of a request; a text is one key for all requests. The client's address by default.
    key: Key | str | Callable[..., Any] | None
    # The units that a request consumes, or a function of the request; 1 by default.
    cost: int | Callable[..., Any]
    # Says of a request that it is not limited.
    skip: Callable[..., Any] | None
    # Makes the response to a refused request, from the request and the Decision; None leaves it to the layer.
    on_denied: Callable[..., Any] | None
    # The header fields of responses: "both", the default, "ietf", "legacy" or "off".
    headers: str
    # Says of a request and its response that the cost is given back.
    refund_when: Callable[..., Any] | None
    # Says of a request and its response what the request really cost.
    settle: Callable[..., Any] | None
    # The HTTP methods that are limited; all of them by default.
    methods: Iterable[str] | None


class LayerOptions(LimitOptions, LimiterOptions, total=False):
    """The options of a layer: those of its limits, and those of the limiter that it makes."""


LIMIT_OPTIONS = tuple(LimitOptions.__annotations__)
