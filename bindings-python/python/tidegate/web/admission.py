"""Checks the limits of a request, and does what is left to do after the response: refunds, settlements, holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .._shown import shown
from .._tidegate import Decision, Limiter, PreparedCheck
from ..errors import CostError, KeyInvalid, RateLimited
from .bound_limit import BoundLimit, LimitEntry
from .keys import Request
from .steps import Steps, awaited

Response: TypeAlias = Any


class Charge:
    """What one entry of an admitted request has consumed."""

    __slots__ = ("bound", "cost", "entry", "key", "returned")

    def __init__(self, bound: BoundLimit, entry: LimitEntry, key: str, cost: int) -> None:
        # Whether it was given back or settled.
        self.returned = False
        self.bound = bound
        self.entry = entry
        self.key = key
        self.cost = cost


class Admission:
    """The result of checking the limits of a request, admitted or denied."""

    __slots__ = ("_charges", "bound", "decision", "decisions", "denied", "holds", "refunds", "settles")

    def __init__(
        self, decision: Decision, bound: BoundLimit, charges: Sequence[Charge] | None, holds: Sequence[Any] = ()
    ) -> None:
        self.decision = decision
        # The Decisions that the header fields announce.
        self.decisions: Sequence[Decision] = (decision,)
        self.denied = not decision
        # The limit that decided.
        self.bound = bound
        self._charges = charges
        self.holds = holds
        # Whether `refund` and `settle` have something to do.
        if charges is None:
            self.refunds, self.settles = bound.refunds, bound.settles
        else:
            self.refunds = any(charge.bound.refunds for charge in charges)
            self.settles = any(charge.bound.settles for charge in charges)

    @property
    def charges(self) -> Sequence[Charge]:
        """What was charged. For a limit that was checked in one native call it is made from the Decision."""
        if self._charges is None:
            decision = self.decision
            charge = Charge(self.bound, self.bound.entry, decision.key, decision.cost)
            self._charges = (charge,) if decision else ()
        return self._charges

    def release(self) -> None:
        """Gives back what is held while the request runs, without waiting for it."""
        holds, self.holds = self.holds, ()
        for hold in holds:
            released = hold.release()
            if released is not None:
                # The release of an async hold has begun; its coroutine has nothing left to do.
                released.close()


def checked_key(entry: LimitEntry, key: Any) -> str:
    """Returns the key with the prefix of its entry; raises when it is no text."""
    if isinstance(key, str):
        return entry.prefix + key
    found = "nothing (None)" if key is None else shown(key)
    raise KeyInvalid(f"the key function {entry.name} returned {found}: a key is text (str)")


def checked_cost(entry: LimitEntry, cost: Any) -> int:
    """Returns the cost; raises when it is no whole number."""
    if isinstance(cost, int) and not isinstance(cost, bool):
        return cost
    raise CostError(f"the cost of {entry.name} is {shown(cost)}: it must be a whole number")


def admit_in_one_call(
    bound: BoundLimit, prepared: PreparedCheck, request: Request, limiter: Limiter
) -> list[tuple[str, str]] | Admission:
    """The same as `admit`, for one limit that has a PreparedCheck.

    Returns the header fields of the response, or the Admission of a request that was denied.
    """
    identity = bound.identify(request)
    if identity:
        answer = prepared.check(limiter, identity)
        return answer if isinstance(answer, list) else Admission(answer, bound, None)
    # A peer without an address: its key function says what follows.
    entry = bound.entry
    decision = limiter.check(entry.policy, entry.prefix + entry.key(request), entry.cost)
    return bound.headers.text(decision) if decision else Admission(decision, bound, None)


def admit(limits: Sequence[BoundLimit], request: Request, method: str | None) -> Steps[Admission | None]:
    """Checks a request. None: no limit applies to it."""
    charges: list[Charge] = []
    for bound in limits:
        if bound.methods is not None and method not in bound.methods:
            continue
        if bound.skip is not None and (yield from awaited(bound.skip(request))):
            continue
        for entry in bound.entries:
            key = checked_key(entry, (yield from awaited(entry.key(request))))
            cost = entry.cost
            if not isinstance(cost, int):
                cost = checked_cost(entry, (yield from awaited(cost(request))))
            charges.append(Charge(bound, entry, key, cost))
    if not charges:
        return None
    return (yield from _check(charges))


def _check(charges: list[Charge]) -> Steps[Admission]:
    """Charges all or nothing, in one round trip. Holds are taken after that."""
    plain = [charge for charge in charges if not charge.entry.holds]
    decision: Decision | None = None
    if len(plain) == 1:
        decision = yield "check", (plain[0].entry.policy, plain[0].key, plain[0].cost)
    elif plain:
        decision = yield "check_all", ([(charge.entry.policy, charge.key, charge.cost) for charge in plain],)
    if decision is not None and not decision:
        return Admission(decision, _denying_limit(decision, plain), ())
    holds: list[Any] = []
    for charge in charges:
        if not charge.entry.holds:
            continue
        try:
            hold = yield "hold", (charge.entry.policy, charge.key, charge.cost)
        except RateLimited as denied:
            admission = Admission(denied.decision, charge.bound, (), holds)
            admission.release()
            yield from give_back(plain)
            return admission
        holds.append(hold)
        decision = hold.decision if decision is None else decision
    assert decision is not None
    admission = Admission(decision, charges[0].bound, plain, holds)
    admission.decisions = [*([decision] if plain else []), *(hold.decision for hold in holds)]
    delay = max([decision.delay, *(hold.decision.delay for hold in holds)])
    if delay:
        try:
            yield "sleep", delay
        except BaseException:
            admission.release()
            raise
    return admission


def _denying_limit(decision: Decision, charges: list[Charge]) -> BoundLimit:
    for one, charge in zip(decision.decisions, charges, strict=False):
        if not one:
            return charge.bound
    return charges[0].bound


def give_back(charges: Iterable[Charge]) -> Steps[None]:
    """Refunds charges in full."""
    for charge in charges:
        yield "refund", (charge.entry.policy, charge.key, charge.cost)


def refund(admission: Admission, request: Request, response: Response) -> Steps[None]:
    """Refunds the charges for which `refund_when` returns true, as soon as the response is known."""
    for charge in admission.charges:
        when = charge.bound.refund_when
        if when is None or charge.returned or _decision_of(admission, charge).shadow:
            continue
        if (yield from awaited(when(request, response))):
            charge.returned = True
            yield from give_back((charge,))


def settle(admission: Admission, request: Request, response: Response) -> Steps[None]:
    """Settles the charges with the actual cost that `settle` returns, after the work. None leaves a charge as it is."""
    for charge in admission.charges:
        actual = charge.bound.settle
        if actual is None or charge.returned or _decision_of(admission, charge).shadow:
            continue
        charge.returned = True
        cost = yield from awaited(actual(request, response))
        if cost is None:
            continue
        if checked_cost(charge.entry, cost) == 0:
            yield from give_back((charge,))
        elif cost != charge.cost:
            yield "settle", (_decision_of(admission, charge), cost)


def _decision_of(admission: Admission, charge: Charge) -> Decision:
    if not admission.decision.decisions:
        return admission.decision
    return admission.decision.decisions[admission.charges.index(charge)]
