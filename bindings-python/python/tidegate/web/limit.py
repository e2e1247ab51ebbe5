"""The limits of an application, as they are written, and as they are prepared for a limiter and a place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .._constants import check_constants, empty_limiter
from .._cost import COST, checked_units
from .._shown import shortened, shown
from .._tidegate import (
    AsyncLimiter,
    Headers,
    Limiter,
    Policy,
    PolicyUse,
    PreparedCheck,
    PreparedPolicy,
    nearest,
    shared_cost,
)
from ..errors import ConfigError, CostError, PolicyError
from .functions import POSITIONAL, is_async, name_of, parameters_of, with_arity
from .keys import Key, ReadRequest, RequestAdapter, check_helper, client_ip, key_option
from .options import LIMIT_OPTIONS, LimitOptions, check_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A name, a notation, a Policy, several of these or of (policy, key, cost), or a function of the request.
PolicyOption: TypeAlias = "str | Policy | Sequence[Any] | Callable[..., Any]"
# A policy with its key and its cost, and True if that cost was given to this policy, not to all policies of the limit.
# Key and cost may be functions of the request.
KeyedPolicy: TypeAlias = "tuple[str | Policy, Key, Any, bool]"

# The values of `hold_until`.
RESPONSE, HANDLER = "response", "handler"
# How many policies that a function returned are remembered for each place.
MAX_POLICIES = 1_000
# The place of the limit of a whole application.
APPLICATION = "*"


class DeclaredLimit:
    """One or several policies with their options. Mistakes in them are errors here, where they are written."""

    def __init__(self, policy: PolicyOption, layer_key: Key | None = None, /, **options: Unpack[LimitOptions]) -> None:
        check_names(options, LIMIT_OPTIONS, "a limit")
        # The first option that is an async function, which not every framework can call.
        self.async_option = next(
            (name for name, given in {"policy": policy, **options}.items() if name != "on_denied" and is_async(given)),
            None,
        )

        def checked(name: str, default: Any, check: Callable[..., Any], *arguments: Any) -> Any:
            given = options.get(name, default)
            return default if given is default else check(given, *arguments)

        self.key = checked("key", None, key_option)
        # The nearest key that reads an address. It identifies callers without a header, a user or a claim.
        keys = (self.key, layer_key)
        self.address = next((key.address for key in keys if key is not None and key.address is not None), None)
        self.cost = checked("cost", 1, cost_option)
        # The function that returns the policies of a request, when they are not the same for all.
        self.choose = _policy_function(policy) if callable(policy) else None
        self.policies = [] if self.choose is not None else self.policies_of(policy)
        if not self.policies and self.choose is None:
            raise ConfigError("policy is an empty list: give at least one policy")
        for use in self.policies:
            _check_notation(use[0])
        self.skip = checked("skip", None, with_arity, 1, "skip")
        self.on_denied = checked("on_denied", None, with_arity, 2, "on_denied")
        self.refund_when = checked("refund_when", None, with_arity, 2, "refund_when")
        self.settle = checked("settle", None, with_arity, 2, "settle")
        self.meta = checked("meta", None, _meta_option)
        self.priority = checked("priority", None, _priority_option)
        self.headers = Headers(options.get("headers", "both"))
        self.hold_until = checked("hold_until", RESPONSE, _hold_until_option)
        self.methods = limited_methods(options.get("methods"))
        self.enabled = checked("enabled", None, flag, "enabled") is not False
        self.per_method = checked("per_method", False, flag, "per_method")

    def read_addresses_as(self, address: Key) -> None:
        """Takes the address of a layer around this one, if its own keys read no address."""
        if self.address is None:
            self.address = address
            within = {id(key): key.within(address) for _, key, *_ in self.policies}
            self.policies = [
                (policy, within[id(key)], cost, names_cost) for policy, key, cost, names_cost in self.policies
            ]

    def policies_of(self, given: Any, key_of: Callable[[Any], Key] | None = None) -> list[KeyedPolicy]:
        """Returns each policy with its key and its cost. `given` is one policy or several."""
        several = given if isinstance(given, (list, tuple)) else [given]
        # One object for all of them, so that they share its answer.
        key = client_ip() if self.key is None else self.key.within(self.address)
        return [self._policy_use(one, key_of or key_option, key) for one in several]

    def _policy_use(self, given: Any, key_of: Callable[[Any], Key], key: Key) -> KeyedPolicy:
        policy, *rest = given if isinstance(given, (list, tuple)) and given else (given,)
        if isinstance(policy, Key):
            raise ConfigError(f"{policy!r} is a key, and stands where a policy belongs: write key={policy!r}")
        if not isinstance(policy, (str, Policy)) or len(rest) > 2:
            raise ConfigError(
                f"a policy must be a name, a notation, a Policy or (policy, key, cost), not {shown(given)}"
            )
        if rest and rest[0] is not None:
            key = key_of(rest[0]).within(self.address)
        names_cost = len(rest) > 1
        return policy, key, cost_option(rest[1]) if names_cost else self.cost, names_cost


class ResolvedPolicy:
    """A policy as its limiter knows it, at a place."""

    def __init__(self, policy: str | Policy, limiter: Limiter | AsyncLimiter, place: str, by: str) -> None:
        # This raises for a wrong policy. The header fields announce it if there is no Decision.
        resolved = self.announced = limiter.policy(policy)
        self.policy, self.name = policy, resolved.name
        # As long as this exists, `reload` refuses to drop the policy.
        self.use = limiter._use_policy(policy, by)
        algorithms = {limit.algorithm for limit in resolved.limits}
        # The names of the units that its limits count.
        self.counted = frozenset(limit.unit or COST for limit in resolved.limits)
        # The classes of calls that leave a part free, or None if there are none.
        self.classes = resolved.priorities
        # The actual cost that gives everything back in a settle.
        self.nothing: Any = 0 if self.counted == {COST} else dict.fromkeys(self.counted, 0)
        self.holds, self.shapes = "concurrency" in algorithms, "leaky-bucket" in algorithms
        # True if a charge leaves usage that can be given back.
        self.rates = algorithms != {"concurrency"}
        # A policy with a name is one limit wherever it is used. A notation counts for the place where it is written:
        # two views with "5/minute" have five each.
        self.place = place if resolved.name == str(resolved) else None
        self.prepared = PreparedPolicy(policy, self.place)


@dataclass(eq=False)
class LimitEntry:
    """One policy of a limit, with its key, the name of the key, and its cost."""

    resolved: ResolvedPolicy
    key: ReadRequest
    name: str
    cost: Any
    names_cost: bool = False


class BoundLimit(DeclaredLimit):
    """One `limit` at one place of an application, for its limiter and for the requests of its framework."""

    def __init__(
        self,
        declared: DeclaredLimit,
        limiter: Limiter | AsyncLimiter,
        adapter: RequestAdapter,
        place: str = "",
        layer_skip: Any = None,
    ) -> None:
        vars(self).update(vars(declared))
        self.declared, self.place = declared, place
        self._limiter, self._adapter = limiter, adapter
        # The policies that the function of this limit has returned, resolved.
        self._known: dict[str | Policy, ResolvedPolicy] = {}
        self.skips = tuple(skip for skip in (layer_skip, declared.skip) if skip is not None)
        self._by = f"the limit of {place}" if place else f"a layer of {type(adapter).__module__}"
        try:
            self.entries = self._entries(self.policies, self._resolved)
        except CostError as error:
            raise ConfigError(error.message) from None
        # True if there may be something to do after the view has answered.
        functions = (self.refund_when, self.settle, self.choose)
        self.has_follow_up = functions != (None, None, None) or any(entry.resolved.holds for entry in self.entries)
        self._check_costs(self.entries)
        self._check_class(self.entries)
        # The header fields announce these before the Decision. A Decision of one policy needs no other announcement.
        self.announced = [entry.resolved.announced for entry in self.entries] if len(self.entries) > 1 else []
        self.prepared: Any = None
        if self.entries:
            self._prepare(self.entries[0].key, self.policies[0][1])

    def _prepare(self, read: ReadRequest, key: Key) -> None:
        """Prepares the usual limit: one key, and costs that are numbers or come from one function.

        One native call then does all of it, with the result of `identify`: the peer's address, or the key.
        """
        self.identify = read if key.ip is None else self._adapter.peer
        # The cost function that the policies share.
        self.cost_of = self.cost if callable(self.cost) else None
        # True if only the adapter is called, which needs no request of the framework.
        self.is_plain = key.plain and self.cost_of is None

        def shares_cost(entry: LimitEntry) -> bool:
            return entry.cost is self.cost_of and not entry.names_cost

        needs_steps = (
            self.has_follow_up
            or self.skips
            or self.methods is not None
            or self.meta is not None
            or self.priority is not None
            or self.per_method
            or any(entry.resolved.shapes or entry.key is not read for entry in self.entries)
            or any(callable(entry.cost) and not shares_cost(entry) for entry in self.entries)
        )
        if not needs_steps:
            policies = [
                (entry.resolved.prepared, entry.resolved.announced, None if shares_cost(entry) else entry.cost)
                for entry in self.entries
            ]
            self.prepared = PreparedCheck(policies, self.headers, key.ip)

    def _entries(
        self, uses: Sequence[KeyedPolicy], resolved: Callable[[str | Policy], ResolvedPolicy]
    ) -> list[LimitEntry]:
        # Policies share the function that reads their key, and so its answer for a request.
        reads = {id(key): key.bind(self._adapter) for _, key, *_ in uses}
        policies = [resolved(policy) for policy, *_ in uses]
        # If policies share a cost in several units, each takes the units that it counts.
        shares = iter(self._shares(self.cost, [one for one, use in zip(policies, uses, strict=True) if not use[3]]))
        entries = [
            LimitEntry(one, reads[id(key)], repr(key), cost if names_cost else next(shares), names_cost)
            for one, (_, key, cost, names_cost) in zip(policies, uses, strict=True)
        ]
        asked = [(entry.resolved.policy, entry.key) for entry in entries]
        for place, one in enumerate(asked):
            if one in asked[:place]:
                name = shortened(entries[place].resolved.name)
                raise ConfigError(
                    f"{self._by}: the policy {name} has the same key twice, so a request would count twice: "
                    "leave one out, or give it another key"
                )
        return entries

    def _resolved(self, policy: str | Policy) -> ResolvedPolicy:
        return ResolvedPolicy(policy, self._limiter, self.place, self._by)

    def _check_costs(self, entries: Sequence[LimitEntry]) -> None:
        """Raises for a cost that no policy could take, such as a number for units."""
        for entry in entries:
            if callable(entry.cost) or (entry.resolved.nothing == 0 and not isinstance(entry.cost, Mapping)):
                continue
            try:
                empty_limiter().peek(entry.resolved.announced, "", entry.cost)
            except CostError as error:
                raise ConfigError(
                    f'{self._by}: {error.message}: give cost a dict such as {{"tokens": 1200}}, or a function of the '
                    "request that returns one"
                ) from None

    def _check_class(self, entries: Sequence[LimitEntry]) -> None:
        """Raises for a class that no request could have."""
        if not isinstance(self.priority, str) or not entries:
            return
        classed = [entry.resolved for entry in entries if entry.resolved.classes is not None]
        if not classed:
            raise ConfigError(
                f"{self._by}: priority is {self.priority!r}, and no policy has classes: declare them with its option "
                'priorities, as in {"batch": "30%"}'
            )
        for resolved in classed:
            # It raises for a class that the policy does not have.
            empty_limiter().peek(resolved.announced, "", resolved.nothing or 1, priority=self.priority)

    def share(self, cost: Any, entry: LimitEntry, entries: Sequence[LimitEntry]) -> Any:
        """Returns the share of an entry in the result of a cost function."""
        sharing = [one for one in entries if not one.names_cost]
        return self._shares(cost, [one.resolved for one in sharing])[sharing.index(entry)]

    def _shares(self, cost: Any, policies: Sequence[ResolvedPolicy]) -> Sequence[Any]:
        """Returns the share of each policy in a cost. Raises CostError for units that none of them counts."""
        if not policies or not isinstance(cost, Mapping):
            return [cost] * len(policies)
        try:
            return shared_cost([one.announced for one in policies], cost)
        except CostError as error:
            raise CostError(f"{self._by}: {error.message}") from None

    @property
    def uses(self) -> list[PolicyUse]:
        """The uses that make a reload keep the policies."""
        return [entry.resolved.use for entry in self.entries]

    def entries_of(self, returned: Any) -> Sequence[LimitEntry]:
        """Returns the entries of a request, from the result of the policy function. None means no limit."""
        if returned is None:
            return ()
        try:
            return self._entries(self.policies_of(returned, _key_of_request), self._resolve)
        except ConfigError as error:
            raise ConfigError(f"{self._chooser()} returned something that is not a policy: {error.message}") from error
        except PolicyError as error:
            raise PolicyError(f"{self._chooser()} returned a wrong policy: {error.message}", error.code) from error

    def _chooser(self) -> str:
        place = f" at {shortened(self.place)}" if self.place else ""
        return f"the policy function {name_of(self.choose)}{place}"

    def _resolve(self, policy: str | Policy) -> ResolvedPolicy:
        known = self._known.get(policy)
        if known is None:
            known = self._resolved(policy)
            if len(self._known) >= MAX_POLICIES:
                self._known.clear()
            self._known[policy] = known
        return known


def flag(given: object, name: str) -> bool:
    """Checks an option that is true or false."""
    if isinstance(given, bool):
        return given
    raise ConfigError(f"{name} must be True or False, not {shown(given)}")


def _key_of_request(given: Any) -> Key:
    """Returns the key from a policy function, which may return the key of its request as text."""
    return Key(shortened(given), lambda _: lambda _: given) if isinstance(given, str) else key_option(given)


def cost_option(given: Any) -> Any:
    """Checks a cost: a number of units, numbers by the names of units, or a function of the request."""
    if isinstance(given, Mapping):
        return checked_units(given, "cost is")
    if callable(given):
        return with_arity(given, 1, "cost")
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise CostError(
            f'cost must be a whole number, a dict such as {{"tokens": 1200}}, or a function of the request, not '
            f"{shown(given)}"
        )
    if given < 1:
        raise CostError(f"cost must be at least 1, not {given}. Use skip for requests that cost nothing")
    check_constants(cost=given)
    return given


def _meta_option(given: Any) -> Any:
    """Checks metadata: a text or bytes, or a function of the request."""
    if not isinstance(given, (str, bytes)):
        return with_arity(given, 1, "meta")
    check_constants(meta=given)
    return given


def _priority_option(given: Any) -> Any:
    """Checks a priority: the name of a class, or a function of the request."""
    return given if isinstance(given, str) else with_arity(given, 1, "priority")


def _hold_until_option(given: Any) -> Any:
    if given in (RESPONSE, HANDLER):
        return given
    raise ConfigError(f"hold_until must be {RESPONSE!r} or {HANDLER!r}, not {shown(given)}")


def _policy_function(given: Any) -> Callable[..., Any]:
    """Checks a function of the request that returns its policies."""
    check_helper(given)
    name, told = name_of(given), 'a limit alone has no policy, write @tg.limit("5/minute") above a view'
    if inspect.isclass(given):
        raise ConfigError(f"{name} is a class, where a policy belongs: {told}")
    parameters = parameters_of(given)
    if parameters is not None and not any(one.kind in (*POSITIONAL, one.VAR_POSITIONAL) for one in parameters):
        raise ConfigError(
            f"{name} is given as a policy and takes no argument: a function that chooses a policy must take the "
            f"request. {told}"
        )
    return with_arity(given, 1, "policy")


def _check_notation(policy: str | Policy) -> None:
    """Raises for a wrong notation. One word may be a name, which only the limiter of a layer knows."""
    if isinstance(policy, str) and any(one.isspace() or one in "/;|," for one in policy.strip()):
        try:
            empty_limiter().policy(policy)
        except PolicyError as error:
            if error.code != "policy_unknown":
                raise


# IANA's registry, and PURGE of caches.
_METHODS = """
ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR
MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT
SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL
"""
METHODS = frozenset(_METHODS.split())
# The budget of methods that no server knows: a client may make up as many as it likes.
OTHER = "OTHER"


def limited_methods(given: Any) -> frozenset[str] | None:
    """Checks the option `methods`."""
    if given is None:
        return None
    if isinstance(given, str):
        raise ConfigError(f"methods must be a list such as [{given!r}], not a text")
    try:
        names = [method.upper() for method in given]
    except (TypeError, AttributeError):
        raise ConfigError(f"methods must be a list such as ['POST'], not {shown(given)}") from None
    if not names:
        raise ConfigError("methods is an empty list, which limits no request: leave it out to limit all methods")
    for name in names:
        if name not in METHODS:
            meant = nearest(name, sorted(METHODS))
            hint = f": did you mean {meant!r}?" if meant else ""
            raise ConfigError(f"methods has {shown(name)}, which is not an HTTP method{hint}")
    # Servers answer HEAD with the view of GET.
    return frozenset([*names, "HEAD"] if "GET" in names else names)


def budget_of(method: str | None) -> str:
    """Returns the name of the budget that a method counts for. A websocket begins with a GET."""
    if method is None or method == "HEAD":
        return "GET"
    return method if method in METHODS else OTHER
