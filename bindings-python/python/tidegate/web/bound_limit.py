"""A declared limit, prepared for a limiter, for the requests of a framework, and for the place where it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._shown import shortened, shown
from .._tidegate import AsyncLimiter, Limiter, Policy, PolicyUse, PreparedCheck, placed_key
from ..errors import ConfigError, KeyInvalid, PolicyError
from .declared_limit import DeclaredLimit, KeyedPolicy
from .functions import name_of
from .keys import Key, ReadRequest, RequestAdapter, UnusableKey

# How many policies that a function returned are remembered for each place.
MAX_POLICIES = 1_000
# The place of the limit of a whole application.
APPLICATION = "*"


class ResolvedPolicy:
    """What a policy means for the limiter, at a place."""

    __slots__ = ("announced", "holds", "name", "place", "policy", "rates", "shapes", "use")

    def __init__(self, policy: str | Policy, limiter: Limiter | AsyncLimiter, place: str, by: str) -> None:
        # It raises for a policy that is wrong.
        resolved = limiter.policy(policy)
        self.policy, self.name = policy, resolved.name
        # What the header fields say of it where no Decision does.
        self.announced = resolved
        # As long as this exists, `reload` refuses to drop the policy.
        self.use = limiter._use_policy(policy, by)
        algorithms = {limit.algorithm for limit in resolved.limits}
        self.holds = "concurrency" in algorithms
        # Whether a charge leaves usage that can be given back.
        self.rates = algorithms != {"concurrency"}
        self.shapes = "leaky-bucket" in algorithms
        # A policy with a name is one limit wherever it is used. A notation counts for the place where it is written:
        # two views with "5/minute" have five each.
        self.place = place if resolved.name == str(resolved) else None


class LimitEntry:
    """One policy of a limit, with its key and its cost."""

    __slots__ = ("cost", "key", "name", "names_cost", "resolved")

    def __init__(
        self, resolved: ResolvedPolicy, key: ReadRequest, name: str, cost: Any, names_cost: bool = False
    ) -> None:
        self.resolved = resolved
        self.key = key
        self.name = name
        self.cost = cost
        # Whether the cost was given to this policy, not to all policies of the limit.
        self.names_cost = names_cost


class BoundLimit:
    """What one `limit` means at one place of an application."""

    __slots__ = (
        "_adapter",
        "_by",
        "_known",
        "_limiter",
        "choose",
        "declared",
        "entries",
        "entry",
        "has_follow_up",
        "headers",
        "hold_until",
        "identify",
        "meta",
        "methods",
        "on_denied",
        "per_method",
        "place",
        "prepared",
        "refund_when",
        "refunds",
        "settle",
        "settles",
        "skips",
    )

    def __init__(
        self,
        declared: DeclaredLimit,
        limiter: Limiter | AsyncLimiter,
        adapter: RequestAdapter,
        place: str = "",
        layer_skip: Any = None,
    ) -> None:
        self.declared, self.place = declared, place
        self._limiter, self._adapter = limiter, adapter
        # By policy, what the function of a limit has returned.
        self._known: dict[str | Policy, ResolvedPolicy] = {}
        self.choose = declared.choose
        self.headers, self.methods, self.meta = declared.headers, declared.methods, declared.meta
        self.per_method, self.hold_until = declared.per_method, declared.hold_until
        self.skips = tuple(skip for skip in (layer_skip, declared.skip) if skip is not None)
        self.on_denied, self.refund_when, self.settle = declared.on_denied, declared.refund_when, declared.settle
        self.refunds, self.settles = declared.refund_when is not None, declared.settle is not None
        self._by = f"the limit of {place}" if place else f"a layer of {type(adapter).__module__}"
        self.entries = [self._entry(use, self._resolved(use[0])) for use in declared.policies]
        # Whether there may be something to do after the view has answered.
        self.has_follow_up = (
            self.refunds
            or self.settles
            or self.choose is not None
            or any(entry.resolved.holds for entry in self.entries)
        )
        self.prepared: PreparedCheck | None = None
        if len(self.entries) == 1:
            self._prepare(self.entries[0], declared.policies[0][1])

    def _prepare(self, first: LimitEntry, key: Key) -> None:
        """One policy, a fixed cost, and no function but the key: what nearly every request needs.

        One native call does all of it, from what `identify` reads of the request: the peer's address, or the key.
        """
        resolved = first.resolved
        self.entry = first
        self.identify = first.key if key.ip is None else self._adapter.peer
        needs_steps = (
            self.has_follow_up
            or resolved.shapes
            or callable(first.cost)
            or self.skips
            or self.methods is not None
            or self.meta is not None
            or self.per_method
        )
        if key.plain and not needs_steps:
            self.prepared = PreparedCheck(resolved.policy, resolved.place, first.cost, self.headers, key.ip)

    def _entry(self, use: KeyedPolicy, resolved: ResolvedPolicy) -> LimitEntry:
        _, key, cost, names_cost = use
        return LimitEntry(resolved, key.bind(self._adapter), repr(key), cost, names_cost)

    def _resolved(self, policy: str | Policy) -> ResolvedPolicy:
        return ResolvedPolicy(policy, self._limiter, self.place, self._by)

    @property
    def uses(self) -> list[PolicyUse]:
        """What makes a reload keep the policies."""
        return [entry.resolved.use for entry in self.entries]

    def entries_of(self, returned: Any) -> Sequence[LimitEntry]:
        """The entries of a request, from what the policy function returned. None: the request has no limit."""
        if returned is None:
            return ()
        try:
            return [
                self._entry(use, self._resolve(use[0])) for use in self.declared.policies_of(returned, of_request=True)
            ]
        except ConfigError as error:
            raise ConfigError(f"{self._chooser()} returned what is no policy: {error.message}") from error
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


def checked_key(entry: LimitEntry, key: Any) -> str:
    """Returns the key; raises when it is no text."""
    if isinstance(key, str):
        return key
    found = "nothing (None)" if key is None else shown(key)
    raise KeyInvalid(f"the key function {entry.name} returned {found}: a key is text (str)")


def placed(entry: LimitEntry, key: str, method: str | None = None) -> str:
    """The key under which an entry counts. It raises for a key that is no valid text."""
    try:
        return placed_key(entry.resolved.place, key, method)
    except KeyInvalid as error:
        raise unusable(error) from None


def unusable(error: KeyInvalid) -> KeyInvalid:
    """The error of a limiter about a key that is text: its client has made it so."""
    return UnusableKey(error.message)
