"""The keyword options of limits and of the layers that have limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from .._options import LimiterOptions
from .keys import Key


class LimitOptions(TypedDict, total=False):
    """The options of one limit. Given to a layer, they are the defaults of its limits."""

    # The key of a request: a Key, a function of the request, or one text for all. The client's address by default.
    key: Key | str | Callable[..., Any] | None
    # The units that a request consumes, or a function of the request; 1 by default.
    cost: int | Callable[..., Any]
    # A function of the request; true exempts the request.
    skip: Callable[..., Any] | None
    # A function of a denied request and its Decision that returns the response, or None for the default one.
    on_denied: Callable[..., Any] | None
    # The header fields of responses: "both", the default, "ietf", "legacy" or "off".
    headers: str
    # A function of the request and its response; true gives the cost back.
    refund_when: Callable[..., Any] | None
    # A function of the request and its response that returns the actual cost.
    settle: Callable[..., Any] | None
    # The HTTP methods that are limited; all of them by default.
    methods: Iterable[str] | None


class LayerOptions(LimitOptions, LimiterOptions, total=False):
    """The options of a layer: those of its limits, and those of the limiter that it makes."""


LIMIT_OPTIONS = tuple(LimitOptions.__annotations__)
