"""Checks the limits of a request, and does what is left to do after the response: refunds, settlements, holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .._shown import shown
from .._tidegate import Decision, Limiter, PreparedCheck
from .._tracing import TRACED, asked
from ..errors import ConfigError, CostError, KeyInvalid, RateLimited, StoreError
from .bound_limit import BoundLimit, LimitEntry
from .functions import name_of
from .keys import Request
from .methods import budget_of
from .steps import Step, Steps, awaited

log = logging.getLogger("tidegate.http")

Response: TypeAlias = Any

# The key under which an environ or a scope carries the Decision about its request.
DECISION = "tidegate.decision"


class Charge:
    """What one entry of a request consumes."""

    __slots__ = ("bound", "cost", "decision", "entry", "key", "meta", "returned")

    # What the limiter said; set when it was asked.
    decision: Decision

    def __init__(self, bound: BoundLimit, entry: LimitEntry, key: str, cost: int, meta: Any = None) -> None:
        # Whether it was given back or settled.
        self.returned = False
        self.bound = bound
        self.entry = entry
        self.key = key
        self.cost = cost
        self.meta = meta

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The policy, the key and the cost, and the metadata where there is some."""
        given = (self.entry.resolved.policy, self.key, self.cost)
        return given if self.meta is None else (*given, self.meta)

    @property
    def consumed(self) -> bool:
        """Whether there is something that can be given back."""
        return self.entry.resolved.rates and not self.returned and not self.decision.shadow


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
            charge.decision = decision
            self._charges = (charge,) if decision else ()
        return self._charges

    def release(self) -> None:
        """Gives back what is held while the request runs, without waiting for it."""
        holds, self.holds = self.holds, ()
        _release(holds)


def _release(holds: Iterable[Any]) -> None:
    for hold in holds:
        released = hold.release()
        if released is not None:
            # The release of an async hold has begun; its coroutine has nothing left to do.
            released.close()


def checked_key(entry: LimitEntry, key: Any) -> str:
    """Returns the key; raises when it is no text."""
    if isinstance(key, str):
        return key
    found = "nothing (None)" if key is None else shown(key)
    raise KeyInvalid(f"the key function {entry.name} returned {found}: a key is text (str)")


def checked_cost(entry: LimitEntry, cost: Any) -> int:
    """Returns the cost; raises when it is no whole number."""
    if isinstance(cost, int) and not isinstance(cost, bool):
        return cost
    raise CostError(f"the cost of {entry.name} is {shown(cost)}: it must be a whole number")


def admit_in_one_call(
    bound: BoundLimit, prepared: PreparedCheck, request: Request, limiter: Limiter
) -> tuple[Decision, list[tuple[str, str]]]:
    """The same as `admit`, for one limit that has a PreparedCheck: the Decision and the header fields."""
    called: Any = asked(limiter) if TRACED else limiter
    identity = bound.identify(request)
    if identity and called is limiter:
        return prepared.check(limiter, identity)
    # A call that is traced, or a peer without an address: its key function says what follows.
    entry = bound.entry
    decision = called.check(entry.resolved.policy, entry.resolved.prefix + entry.key(request), entry.cost)
    return decision, bound.headers.text(decision)


def admit(limits: Sequence[BoundLimit], request: Request, method: str | None) -> Steps[Admission | None]:
    """Checks a request. None: no limit applies to it."""
    charges: list[Charge] = []
    # A function that several limits share, such as the skip of their layer, is called once.
    skipped: dict[Any, bool] = {}
    for bound in limits:
        if bound.methods is not None and method not in bound.methods:
            continue
        if bound.skips and (yield from _skips(bound, request, skipped)):
            continue
        entries: Sequence[LimitEntry] = bound.entries
        if bound.choose is not None:
            entries = bound.entries_of((yield from awaited(bound.choose(request))))
            if not entries:
                continue
        meta = bound.meta
        if meta is not None and callable(meta):
            meta = _checked_meta(bound, (yield from awaited(meta(request))))
        budget = f"{budget_of(method)} " if bound.per_method else ""
        for entry in entries:
            key = checked_key(entry, (yield from awaited(entry.key(request))))
            cost = entry.cost
            if not isinstance(cost, int):
                cost = checked_cost(entry, (yield from awaited(cost(request))))
            charges.append(Charge(bound, entry, f"{entry.resolved.prefix}{budget}{key}", cost, meta))
    if not charges:
        return None
    return (yield from _check(charges))


def _skips(bound: BoundLimit, request: Request, known: dict[Any, bool]) -> Steps[bool]:
    for skip in bound.skips:
        if skip not in known:
            known[skip] = bool((yield from awaited(skip(request))))
        if known[skip]:
            return True
    return False


def _checked_meta(bound: BoundLimit, meta: Any) -> str | bytes | None:
    if meta is None or isinstance(meta, (str, bytes)):
        return meta
    raise ConfigError(
        f"the meta function {name_of(bound.meta)} returned {shown(meta)}: the journal takes text (str) or bytes"
    )


def _check(charges: list[Charge]) -> Steps[Admission]:
    """Charges all or nothing.

    Holds come first, because a hold that is given back leaves no trace; all other policies follow in one round trip.
    """
    held: list[Charge] = []
    holds: list[Any] = []
    plain = [charge for charge in charges if not charge.entry.resolved.holds]
    try:
        for charge in charges:
            if not charge.entry.resolved.holds:
                continue
            try:
                hold = yield "hold", charge.arguments
            except RateLimited as denied:
                return (yield from _refuse(denied.decision, charge.bound, held, holds))
            charge.decision = hold.decision
            held.append(charge)
            holds.append(hold)
        checked: Decision | None = None
        if plain:
            checked = yield _asking(plain)
            for charge, decision in zip(plain, checked.decisions or (checked,), strict=True):
                charge.decision = decision
            if not checked:
                return (yield from _refuse(checked, _denying_limit(plain), held, holds))
        decisions = [*([] if checked is None else [checked]), *(hold.decision for hold in holds)]
        delay = max(decision.delay for decision in decisions)
        if delay:
            yield "sleep", delay
    except BaseException:
        _release(holds)
        raise
    admission = Admission(_combined(checked, charges), charges[0].bound, charges, holds)
    admission.decisions = decisions
    return admission


def _asking(charges: Sequence[Charge]) -> Step:
    if len(charges) == 1:
        return "check", charges[0].arguments
    return "check_all", ([charge.arguments for charge in charges],)


def _refuse(decision: Decision, bound: BoundLimit, held: list[Charge], holds: list[Any]) -> Steps[Admission]:
    """Takes back what was held before the denial."""
    _release(holds)
    yield from _give_back(held)
    return Admission(decision, bound, ())


def _denying_limit(charges: list[Charge]) -> BoundLimit:
    return next((charge.bound for charge in charges if not charge.decision), charges[0].bound)


def _combined(checked: Decision | None, charges: Sequence[Charge]) -> Decision:
    """One Decision about a request. Several, of holds or of holds and a check, become one as that of `check_all` is."""
    if len(charges) == 1:
        return charges[0].decision
    if checked is not None and len(checked.decisions) == len(charges):
        return checked
    decisions = tuple(charge.decision for charge in charges)
    binding = min(decisions, key=lambda decision: decision.remaining / max(decision.limit, 1))
    restore, arguments = binding.__reduce__()
    combined: Decision = restore(*arguments[:-1], decisions)  # type: ignore[operator, index]
    return combined


def _give_back(charges: Iterable[Charge]) -> Steps[None]:
    for charge in charges:
        if not charge.consumed:
            continue
        charge.returned = True
        try:
            yield "refund", charge.arguments[:3]
        except StoreError as error:
            _warn(charge, error)


def _warn(charge: Charge, error: StoreError) -> None:
    # The response is the view's by now: an error would only replace it.
    log.warning("%s could not be corrected after the response: %s", charge.decision.policy, error.message)


def withdraw(admission: Admission) -> Steps[None]:
    """Takes an admission back: what is held and what was charged."""
    admission.release()
    yield from _give_back(admission.charges)


def refund(admission: Admission, request: Request, response: Response) -> Steps[None]:
    """Refunds the charges for which `refund_when` returns true, as soon as the response is known."""
    for charge in admission.charges:
        when = charge.bound.refund_when
        if when is not None and charge.consumed and (yield from awaited(when(request, response))):
            yield from _give_back((charge,))


def settle(admission: Admission, request: Request, response: Response) -> Steps[None]:
    """Settles the charges with the actual cost that `settle` returns, after the work. None leaves a charge as it is."""
    for charge in admission.charges:
        actual = charge.bound.settle
        if actual is None or not charge.consumed:
            continue
        cost = yield from awaited(actual(request, response))
        if cost is None:
            charge.returned = True
        elif checked_cost(charge.entry, cost) == 0:
            yield from _give_back((charge,))
        else:
            charge.returned = True
            if cost != charge.cost:
                try:
                    yield "settle", (charge.decision, cost)
                except StoreError as error:
                    _warn(charge, error)
