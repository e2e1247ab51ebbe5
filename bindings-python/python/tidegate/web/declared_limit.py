"""A limit as an application writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._shown import shortened, shown
from .._tidegate import Headers, Policy
from ..errors import ConfigError, CostError
from .functions import name_of, with_arity
from .keys import Key, client_ip
from .options import LIMIT_OPTIONS, LimitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DeclaredLimit:
    """One or several policies with their options. The options are checked here, where they are written."""

    __slots__ = ("cost", "headers", "key", "methods", "on_denied", "policies", "refund_when", "scope", "settle", "skip")

    def __init__(
        self, policy: str | Policy | Sequence[Any], *, scope: str = "", **options: Unpack[LimitOptions]
    ) -> None:
        if callable(policy):
            raise ConfigError(f'{name_of(policy)} stands where a policy belongs: write @….limit("5/minute")')
        for name in options:
            if name not in LIMIT_OPTIONS:
                raise TypeError(f"a limit has no option {name!r}: its options are {', '.join(LIMIT_OPTIONS)}")
        policies = policy if isinstance(policy, (list, tuple)) else [policy]
        if not policies:
            raise ConfigError("policy is an empty list: give at least one policy")
        # The name under which a notation is counted.
        self.scope = scope
        self.key, self.cost = options.get("key"), options.get("cost", 1)
        self.policies = [self._with_key_and_cost(one) for one in policies]
        skip, on_denied = options.get("skip"), options.get("on_denied")
        refund_when, settle = options.get("refund_when"), options.get("settle")
        self.skip = None if skip is None else with_arity(skip, 1, "skip")
        self.on_denied = None if on_denied is None else with_arity(on_denied, 2, "on_denied")
        self.refund_when = None if refund_when is None else with_arity(refund_when, 2, "refund_when")
        self.settle = None if settle is None else with_arity(settle, 2, "settle")
        self.headers = Headers(options.get("headers", "both"))
        methods = options.get("methods")
        if isinstance(methods, str):
            raise ConfigError(f"methods is a list such as [{methods!r}], not a text")
        self.methods = None if methods is None else frozenset(method.upper() for method in methods)

    def _with_key_and_cost(self, given: Any) -> tuple[str | Policy, Key, Any]:
        policy, *rest = given if isinstance(given, (list, tuple)) else (given,)
        if not isinstance(policy, (str, Policy)) or len(rest) > 2:
            raise ConfigError(f"a policy is a name, a notation, a Policy or (policy, key, cost), not {shown(given)}")
        key: Any = rest[0] if rest and rest[0] is not None else self.key
        cost: Any = rest[1] if len(rest) > 1 else self.cost
        if key is None:
            key = client_ip()
        elif isinstance(key, str):
            fixed = key
            key = Key(shortened(fixed), lambda _: lambda _: fixed, plain=True)
        elif not isinstance(key, Key):
            function = with_arity(key, 1, "key")
            key = Key(name_of(key), lambda _: function)
        if isinstance(cost, bool) or not (isinstance(cost, int) or callable(cost)):
            raise CostError(f"cost is a whole number or a function of the request, not {shown(cost)}")
        return policy, key, with_arity(cost, 1, "cost") if callable(cost) else cost
