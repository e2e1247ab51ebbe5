"""Checks the limits of a request, and handles refunds, settlements and holds after the response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .._cost import checked_units
from .._shown import shown
from .._tidegate import Admission as Held
from .._tidegate import Decision, Limiter, Policy, costs_of_entries
from .._tracing import TRACED
from ..errors import ConfigError, CostError, KeyInvalid, StoreError
from .functions import name_of
from .keys import Request, UnusableKey
from .limit import BoundLimit, LimitEntry, budget_of
from .steps import Steps, awaited, run_steps

# One policy that a request is checked against: its limit, all entries of that limit, its entry, and the cost.
Asked: TypeAlias = "tuple[BoundLimit, Sequence[LimitEntry], LimitEntry, Any]"


@dataclass(eq=False)
class Charge:
    """The charge of a request for one entry of a limit."""

    bound: BoundLimit
    # All entries of its limit, `entry` among them.
    entries: Sequence[LimitEntry]
    entry: LimitEntry
    cost: Any
    decision: Decision
    # True if it was given back or settled.
    returned: bool = False

    @property
    def consumed(self) -> bool:
        """True if the charge can still be given back."""
        return self.entry.resolved.rates and not self.returned and not self.decision.shadow


def settlements(charges: Sequence[Charge], given: Any) -> list[tuple[Charge, Any]]:
    """Returns the charges of one limit to settle, each with its cost. Raises before any of them is settled."""
    if given is None:
        return []
    entries = charges[0].entries
    costs = costs_of_entries([(entry.resolved.announced, entry.names_cost) for entry in entries], given)
    # An entry with a cost of 0 has no charge.
    settled = [(charge, costs[entries.index(charge.entry)]) for charge in charges]
    return [(charge, cost) for charge, cost in settled if cost is not None]


def _checked_cost(given: Any, name: str) -> Any:
    told = f"the cost function {name} returned"
    if isinstance(given, Mapping):
        return checked_units(given, told)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise CostError(
        f"{told} {shown(given)}: a cost is a whole number from 0 on, or a dict of such numbers by the names of units"
    )


log = logging.getLogger("tidegate.http")

Response: TypeAlias = Any

# The key under which an environ or a scope carries the Decision about its request.
DECISION = "tidegate.decision"


class ResponseStart:
    """The status and the header fields of a response, for `refund_when` and `settle` without a framework class."""

    def __init__(self, status_code: int, headers: Iterable[tuple[str, str]]) -> None:
        self.status_code = status_code
        self.headers = {name.lower(): value for name, value in headers}


class Admission:
    """The result of checking the limits of a request, admitted or denied."""

    # Made when they are first needed.
    _charges: Sequence[Charge] | None = None
    # The checked policies. This is empty if the limit was checked in one native call.
    asked: Sequence[Asked] = ()
    # The answer of the limiter while something is held.
    _held: Held | None = None
    # True if `refund` and `settle` have something to do.
    refunds = settles = False
    # The policies and Decisions for the header fields. With several policies, the policies stand first, because a
    # refusal leaves some unasked.
    _announced: Sequence[Policy | Decision] = ()

    def __init__(self, decision: Decision, bound: BoundLimit, fields: Sequence[tuple[str, str]] = ()) -> None:
        # Each request makes one, so values that few requests need are defaults of the class.
        self.decision = decision
        # The limit that decided.
        self.bound = bound
        # The header fields, for frameworks that run on threads.
        self.fields = fields

    @property
    def announced(self) -> Sequence[Policy | Decision]:
        """The policies and Decisions that the header fields announce."""
        return self._announced or (*self.bound.announced, self.decision)

    @property
    def charges(self) -> Sequence[Charge]:
        """The charges of the request."""
        if self._charges is None:
            decision, bound = self.decision, self.bound
            asked = self.asked or [(bound, bound.entries, entry, entry.cost) for entry in bound.entries]
            decisions = decision.decisions or (decision,)
            charges = (
                [Charge(*one, decision=of_one) for one, of_one in zip(asked, decisions, strict=True)]
                if decision
                else ()
            )
            self._charges = charges
        return self._charges

    @property
    def holds(self) -> bool:
        """True if anything is held."""
        return self._held is not None

    def release(self, until: str | None = None) -> None:
        """Gives all held units back, or those held `until` then. It does not wait for the store."""
        held = self._held
        if held is None:
            return
        if until is None:
            held.release()
        else:
            held.release([place for place, one in enumerate(self.charges) if one.bound.hold_until == until])
        if not held.holds:
            self._held = None


def failed(error: StoreError | KeyInvalid, bound: BoundLimit, entries: Iterable[LimitEntry]) -> StoreError | KeyInvalid:
    """Returns the error for the response: UnusableKey for a bad key, or the store's error with the policies."""
    if isinstance(error, KeyInvalid):
        return UnusableKey(error.message)
    error._announced = bound.headers, tuple(entry.resolved.announced for entry in entries)
    return error


def checked_key(entry: LimitEntry, key: Any) -> str:
    """Returns the key. Raises KeyInvalid if it is no text."""
    if isinstance(key, str):
        return key
    found = "nothing (None)" if key is None else shown(key)
    raise KeyInvalid(f"the key function {entry.name} returned {found}: a key must be text (str)")


# The answers of the application's functions for a request, by the ids of the functions. Each stands with its function,
# because a new function could get the id of one that is gone.
Known: TypeAlias = "dict[int, tuple[Any, Any]]"


def admit(
    limits: Sequence[BoundLimit], request: Request, method: str | None, known: Known | None = None
) -> Steps[Admission | None]:
    """Checks a request. Returns None if no limit applies to it."""
    asked: list[Asked] = []
    questions: list[tuple[Any, ...]] = []
    # A function that several limits or policies share, such as the skip of their layer, is called once.
    known = {} if known is None else known
    for bound in limits:
        # A websocket, which has no method, begins with a GET.
        if bound.methods is not None and (method or "GET") not in bound.methods:
            continue
        if bound.skips and (yield from _skips(bound, request, known)):
            continue
        entries: Sequence[LimitEntry] = bound.entries
        if bound.choose is not None:
            entries = bound.entries_of((yield from awaited(bound.choose(request))))
        found: list[tuple[LimitEntry, str, Any]] = []
        for entry in entries:
            read = entry.key
            key = known[id(read)][1] if id(read) in known else read(request)
            if type(key) is not str:
                key = checked_key(entry, (yield from awaited(key)))
            known[id(read)] = read, key
            cost = entry.cost
            if type(cost) is not int and callable(cost):
                cost = yield from _once(cost, request, known)
                if type(cost) is not int or cost < 0:
                    cost = _checked_cost(cost, name_of(entry.cost))
                    if not entry.names_cost:
                        cost = bound.share(cost, entry, entries)
            # There is nothing to limit for a cost of 0, such as an empty batch.
            if cost != 0:
                found.append((entry, key, cost))
        if not found:
            continue
        meta, priority = bound.meta, bound.priority
        if callable(meta):
            meta = _made("meta", meta, (yield from _once(meta, request, known)), (str, bytes))
        if callable(priority):
            priority = _made("priority", priority, (yield from _once(priority, request, known)), (str,))
        budget = budget_of(method) if bound.per_method else None
        for entry, key, cost in found:
            asked.append((bound, entries, entry, cost))
            questions.append((entry.resolved.prepared, key, cost, meta, priority, budget))
    if not asked:
        return None
    # The core does this in one step: it charges and holds all, or none.
    try:
        answer: Held = yield "_admit", (questions,)
    except (StoreError, KeyInvalid) as error:
        raise failed(error, asked[0][0], [entry for _, _, entry, _ in asked]) from error.__cause__
    refused_by = answer.refused_by
    admission = Admission(answer.decision, asked[refused_by or 0][0])
    policies = [entry.resolved.announced for _, _, entry, _ in asked] if len(asked) > 1 else []
    admission._announced = (*policies, answer.decision)
    if refused_by is not None:
        return admission
    admission.asked = asked
    for bound, *_ in asked:
        if bound.has_follow_up:
            admission.refunds = admission.refunds or bound.refund_when is not None
            admission.settles = admission.settles or bound.settle is not None
    if answer.holds:
        admission._held = answer
    if answer.delay:
        try:
            yield "sleep", answer.delay
        except BaseException:
            answer.release()
            raise
    return admission


def _once(function: Any, request: Request, known: Known) -> Steps[Any]:
    """Returns the answer of the application's function. Each request calls it only once."""
    given = known[id(function)][1] if id(function) in known else function(request)
    given = yield from awaited(given)
    known[id(function)] = function, given
    return given


def _skips(bound: BoundLimit, request: Request, known: Known) -> Steps[bool]:
    for skip in bound.skips:
        if (yield from _once(skip, request, known)):
            return True
    return False


def _made(option: str, function: Any, made: Any, kinds: tuple[type, ...]) -> Any:
    """Returns the result of a function, or None. Raises for a result of another kind."""
    if made is None or isinstance(made, kinds):
        return made
    must = "a class must be text (str)" if option == "priority" else "meta must be text (str) or bytes"
    raise ConfigError(f"the {option} function {name_of(function)} returned {shown(made)}: {must}")


def _give_back(admission: Admission, charges: Iterable[Charge]) -> Steps[None]:
    return _settle_charges(admission, {charge: charge.entry.resolved.nothing for charge in charges if charge.consumed})


def _settle_charges(admission: Admission, costs: Mapping[Charge, Any]) -> Steps[None]:
    """Settles charges with these costs, in one step if they are all charges of the admission."""
    for charge in costs:
        charge.returned = True
    whole = 1 < len(costs) == len(admission.charges)
    of_all = [(admission.decision, [costs.get(charge) for charge in admission.charges])]
    for decision, cost in of_all if whole else [(charge.decision, cost) for charge, cost in costs.items()]:
        try:
            yield "settle", (decision, cost)
        except (StoreError, ConfigError) as error:
            # The view has made its response by now, and an error would only replace it. A ConfigError comes from a
            # view that has settled its Decision itself.
            log.warning(
                "the charge of %s could not be corrected after the response: %s", decision.policy, error.message
            )


def withdraw(admissions: Iterable[Admission]) -> Steps[None]:
    """Takes admissions back, with their held and their charged units."""
    for admission in admissions:
        admission.release()
        yield from _give_back(admission, admission.charges)


def refund(admissions: Iterable[Admission], request: Request, response: Response) -> Steps[None]:
    """Refunds the charges for which `refund_when` returns true, as soon as the response is known."""
    for admission in admissions:
        if not admission.refunds:
            continue
        admission.refunds = False
        for bound in dict.fromkeys(charge.bound for charge in admission.charges):
            consumed = [charge for charge in admission.charges if charge.bound is bound and charge.consumed]
            when = bound.refund_when
            if consumed and when is not None and (yield from awaited(when(request, response))):
                yield from _give_back(admission, consumed)


def end_work(
    admissions: Iterable[Admission], request: Request, response: Response, until: str | None = None
) -> Steps[None]:
    """Ends the work of a request: gives its held units back, and settles the cost of the work."""
    for admission in admissions:
        admission.release(until)
        if admission.settles:
            admission.settles = False
            yield from _settle(admission, request, response)


def _settle(admission: Admission, request: Request, response: Response) -> Steps[None]:
    """Settles the charges with the actual cost that `settle` returns, after the work. None leaves a charge as it is.

    A failure is only logged, and the charges stay, because the view has already made its response.
    """
    for bound in dict.fromkeys(charge.bound for charge in admission.charges):
        charges = [charge for charge in admission.charges if charge.bound is bound]
        if bound.settle is None or not any(charge.consumed for charge in charges):
            continue
        try:
            actual = settlements(charges, (yield from awaited(bound.settle(request, response))))
        except Exception:
            log.exception("settle of %s has failed, so the charge stays as it was", charges[0].decision.policy)
        else:
            changed = {charge: cost for charge, cost in actual if charge.consumed and cost != charge.cost}
            yield from _settle_charges(admission, changed)


def gathered(bound: BoundLimit, request: Request) -> tuple[str | None, int | None, Known]:
    """Reads the identity of a request for one native call, and the cost if a function returns it.

    A request without an identity, such as one whose peer has no address, goes to `admit` with the answers so far.
    """
    identity, cost_of = bound.identify(request), bound.cost_of
    read: tuple[Any, Any] = bound.identify, identity
    if type(identity) is not str or not identity:
        return None, None, {id(bound.identify): read}
    if cost_of is None:
        return identity, None, {}
    cost = cost_of(request)
    if type(cost) is int and cost > 0:
        return identity, cost, {}
    return None, None, {id(bound.identify): read, id(cost_of): (cost_of, cost)}


def admit_on_thread(
    limits: Sequence[BoundLimit], request: Request, method: str | None, limiter: Limiter
) -> Admission | None:
    """Checks a request on this thread. Returns None if no limit applies to it."""
    bound = limits[0]
    known: Known | None = None
    if bound.prepared and len(limits) == 1 and id(limiter) not in TRACED:
        identity, cost, known = gathered(bound, request)
        if identity:
            try:
                decision, fields = bound.prepared.check(limiter, identity, cost)
            except (StoreError, KeyInvalid) as error:
                raise failed(error, bound, bound.entries) from error.__cause__
            return Admission(decision, bound, fields)
    if (admission := run_steps(admit(limits, request, method, known), limiter)) is not None:
        admission.fields = admission.bound.headers.text(*admission.announced)
    return admission
