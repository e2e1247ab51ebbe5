"""The options of one use of a policy, checked where they are written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._tidegate import Headers, Policy
from ..errors import ConfigError, CostError
from .functions import adapted, name_of
from .keys import Key, client_ip


class Rule:
    """The options of one use of a policy, checked where they are written."""

    __slots__ = ("cost", "headers", "key", "methods", "on_denied", "policies", "refund_when", "scope", "settle", "skip")

    def __init__(
        self,
        policy: str | Policy | Sequence[Any],
        *,
        key: Key | Callable[..., Any] | None = None,
        cost: int | Callable[..., Any] = 1,
        skip: Callable[..., Any] | None = None,
        on_denied: Callable[..., Any] | None = None,
        headers: str = "both",
        refund_when: Callable[..., Any] | None = None,
        settle: Callable[..., Any] | None = None,
        methods: Iterable[str] | None = None,
        scope: str = "",
    ) -> None:
        if callable(policy):
            raise ConfigError(f'{name_of(policy)} stands where a policy belongs: write @….limit("5/minute")')
        several = policy if isinstance(policy, (list, tuple)) else [policy]
        if not several:
            raise ConfigError("policy is an empty list: give at least one policy")
        self.policies = [self._entry(one, key, cost) for one in several]
        self.key, self.cost, self.scope = key, cost, scope
        self.skip = None if skip is None else adapted(skip, 1, "skip")
        self.on_denied = None if on_denied is None else adapted(on_denied, 2, "on_denied")
        self.refund_when = None if refund_when is None else adapted(refund_when, 2, "refund_when")
        self.settle = None if settle is None else adapted(settle, 2, "settle")
        self.headers = Headers(headers)
        if isinstance(methods, str):
            raise ConfigError(f"methods is a list such as [{methods!r}], not a text")
        self.methods = None if methods is None else frozenset(method.upper() for method in methods)

    @staticmethod
    def _entry(one: Any, key: Any, cost: Any) -> tuple[str | Policy, Key, Any]:
        policy, *rest = one if isinstance(one, (list, tuple)) else (one,)
        if not isinstance(policy, (str, Policy)) or len(rest) > 2:
            raise ConfigError(f"a policy is a name, a notation, a Policy or (policy, key, cost), not {one!r}")
        given = rest[0] if rest and rest[0] is not None else key
        units = rest[1] if len(rest) > 1 else cost
        if given is None:
            given = client_ip()
        elif isinstance(given, str):
            fixed = given
            given = Key(repr(fixed), lambda _: lambda _: fixed, plain=True)
        elif not isinstance(given, Key):
            function = adapted(given, 1, "key")
            given = Key(name_of(given), lambda _: function)
        if isinstance(units, bool) or not (isinstance(units, int) or callable(units)):
            raise CostError(f"cost is a whole number or a function of the request, not {units!r}")
        return policy, given, adapted(units, 1, "cost") if callable(units) else units


# What can be said of a limit, and once for all limits that say nothing else.
OPTIONS = tuple(
    name for name, one in inspect.signature(Rule).parameters.items() if one.kind is one.KEYWORD_ONLY and name != "scope"
)
