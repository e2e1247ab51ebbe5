"""The keyword options of limits and of the layers that have limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from .._options import LimiterOptions
from .._tidegate import nearest
from .keys import Key


class LimitOptions(TypedDict, total=False):
    """The options of one limit. Given to a layer, they are the defaults of its limits, except `skip` and `enabled`."""

    # The key of a request: a Key or a function of the request. The client's address by default.
    key: Key | Callable[..., Any] | None
    # The units that a request consumes, or a function of the request; 1 by default. A function's 0 charges nothing.
    cost: int | Callable[..., Any]
    # A function of the request; true exempts the request. That of a layer applies to each of its limits as well.
    skip: Callable[..., Any] | None
    # A function of a denied request and its Decision that returns the response, or None for the default one. Without a
    # status of its own the response has that of the refusal.
    on_denied: Callable[..., Any] | None
    # The header fields of responses: "both", the default, "ietf", "ietf-10", "ietf-11", "legacy" or "off".
    headers: str
    # A function of the request and its response; true gives the cost back.
    refund_when: Callable[..., Any] | None
    # A function of the request and its response that returns the actual cost: one number for the policies that name a
    # cost (for all of them if none does), numbers by the names of policies, or a list with one for each policy.
    settle: Callable[..., Any] | None
    # How long a hold lasts: to the end of the "response", the default, or of the "handler", which may run longer.
    hold_until: str
    # What the journal remembers of a request: a text, or a function of the request.
    meta: str | bytes | Callable[..., Any] | None
    # The HTTP methods that are limited; all of them by default. HEAD counts as GET.
    methods: Iterable[str] | None
    # Whether each HTTP method has a budget of its own. HEAD shares that of GET.
    per_method: bool
    # False: the limit is as if it were not written. A layer does nothing at all.
    enabled: bool | None


class LayerOptions(LimitOptions, LimiterOptions, total=False):
    """The options of a layer: those of its limits, and those of the limiter that it makes."""


LIMIT_OPTIONS = tuple(LimitOptions.__annotations__)
LIMITER_OPTIONS = tuple(LimiterOptions.__annotations__)
# What the limits of a layer take from it.
INHERITED_OPTIONS = tuple(name for name in LIMIT_OPTIONS if name not in ("skip", "enabled"))


def check_names(given: Iterable[str], known: Sequence[str], owner: str) -> None:
    """Raises for an option that does not exist, and names the nearest one that does."""
    for name in given:
        if name not in known:
            meant = nearest(name, list(known))
            hint = f": did you mean {meant!r}?" if meant else "."
            raise TypeError(f"{owner} has no option {name!r}{hint} Its options are {', '.join(known)}")
