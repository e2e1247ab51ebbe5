"""The keyword options of limits and of the layers that have limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from .._options import LimiterOptions
from .._tidegate import nearest
from .keys import Key


class LimitOptions(TypedDict, total=False):
    """The options of one limit. Given to a layer, they are the defaults of its limits, except `skip` and `enabled`."""

    # options: limit
    # The key of a request: a function of the request, or what a helper such as that of the client's address returns.
    # Default: the client's address.
    key: Key | Callable[..., Any] | None
    # The units that a request consumes: a number, numbers by the names of units, or a function of the request. Of
    # numbers by names each policy takes those that it counts. A function's 0 charges nothing. Default: 1.
    cost: int | Mapping[str, int] | Callable[..., Any]
    # A function of the request; true exempts the request. That of a layer applies to each of its limits as well.
    skip: Callable[..., Any] | None
    # Called when a request is refused, and may answer it. It gets the request and the Decision, and returns the
    # response, or None for the default one. An answer without a status of its own has that of the refusal.
    on_denied: Callable[..., Any] | None
    # Which fields announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`,
    # `legacy` or `off`. Default: `both`.
    headers: str
    # Called when the response has ended, with the request and the response. True gives back what the request consumed.
    refund_when: Callable[..., Any] | None
    # Called when the response has ended, with the request and the response: the units that the request should have
    # consumed; nothing is as many as it did. Of numbers by the names of units each policy takes those that it counts,
    # and others stay. Of several policies one number is for those that name a cost, or for all where none does; a list
    # has a number for each, a map one for each policy that it names.
    settle: Callable[..., Any] | None
    # How long units of a `concurrency` limit are held: to the end of the `response`, or to that of the `handler`, which
    # may run longer. Default: `response`.
    hold_until: str
    # What the journal remembers of a request: a text, bytes, or a function of the request.
    meta: str | bytes | Callable[..., Any] | None
    # The class of a request, one of those that a policy declares with its option `priorities`: a name, or a function of
    # the request, which may return nothing for none. Of several policies it is for those that have classes.
    priority: str | Callable[..., Any] | None
    # The HTTP methods that are limited. HEAD counts as GET. Default: all of them.
    methods: Iterable[str] | None
    # Whether each HTTP method has a budget of its own. HEAD shares that of GET. Default: False.
    per_method: bool
    # False: nothing is limited, as if the limit were not written. Default: the environment variable `TIDEGATE_ENABLED`,
    # else true.
    enabled: bool | None
    # options end


class LayerOptions(LimitOptions, LimiterOptions, total=False):
    """The options of a layer: those of its limits, and those of the limiter that it makes."""


LIMIT_OPTIONS = tuple(LimitOptions.__annotations__)
LIMITER_OPTIONS = tuple(LimiterOptions.__annotations__)
# The options that the limits of a layer take from it.
INHERITED_OPTIONS = tuple(name for name in LIMIT_OPTIONS if name not in ("skip", "enabled"))


def check_names(given: Iterable[str], known: Sequence[str], owner: str) -> None:
    """Raises for an option that does not exist, and names the nearest one that does."""
    for name in given:
        if name not in known:
            meant = nearest(name, list(known))
            hint = f": did you mean {meant!r}?" if meant else "."
            raise TypeError(f"{owner} has no option {name!r}{hint} Its options are {', '.join(known)}")
