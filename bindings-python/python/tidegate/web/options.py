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
    # The key of a request: a function of the request, or a key helper, such as the one for the client's address.
    # Default: the client's address.
    key: Key | Callable[..., Any] | None
    # The units that a request consumes: a number, numbers by the names of units, or a function of the request. Each
    # policy takes the units that it counts. A function of Python may return 0, which charges nothing. Default: 1.
    cost: int | Mapping[str, int] | Callable[..., Any]
    # A function of the request that returns true for a request without a limit. The `skip` of a layer applies to all
    # its limits.
    skip: Callable[..., Any] | None
    # A function that may answer a refused request. It gets the request and the Decision, and returns the response, or
    # None for the default one. In Node, `'throw'` gives the refusal to the error handling of the framework, as an error
    # with `status` and `decision`. An answer without a status gets the status of the refusal.
    on_denied: Callable[..., Any] | None
    # The fields that announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`,
    # `legacy` or `off`. Default: `both`.
    headers: str
    # A function of the request and the response, which Tidegate calls at the end of the response. If it returns true,
    # the units of the request go back. In Node, a function of one argument gets the response, so the first argument has
    # the type of both.
    refund_when: Callable[..., Any] | None
    # A function of the request and the response, which Tidegate calls at the end of the response. It returns the actual
    # cost of the request, or nothing to keep the charge. With numbers by the names of units, each policy takes its
    # units, and the others stay. With several policies, one number is for the policies with a cost, or for all if none
    # has one. A list has a number for each policy, and a map has numbers by the names of policies. In Node, a function
    # of one argument gets the response.
    settle: Callable[..., Any] | None
    # The end of a hold of a `concurrency` limit: the end of the `response`, or of the `handler`, which may run longer.
    # In Node, `settle` and `refund_when` are called at the same moment. Default: `response`.
    hold_until: str
    # The metadata of a request for the journal: a text, bytes, or a function of the request.
    meta: str | bytes | Callable[..., Any] | None
    # The class of a request, one of the `priorities` of a policy: a name, or a function of the request. The function
    # may return nothing, for no class. With several policies, it is for those with classes.
    priority: str | Callable[..., Any] | None
    # The HTTP methods that are limited. HEAD counts as GET. Default: all of them.
    methods: Iterable[str] | None
    # Give each HTTP method a separate budget. HEAD shares the budget of GET. Default: False.
    per_method: bool
    # False turns the limit off, as if it were not written. Default: the environment variable `TIDEGATE_ENABLED`, else
    # true.
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
