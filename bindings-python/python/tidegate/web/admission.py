"""Asking for a request, and what is to be done when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .._tidegate import Decision, Desk, Limiter
from ..errors import CostError, KeyInvalid, RateLimited
from .guard import Entry, Guard
from .keys import Request
from .steps import Steps, waited

Response: TypeAlias = Any


class Charge:
    """What one entry of an admitted request has consumed."""

    __slots__ = ("cost", "entry", "guard", "key", "returned")

    def __init__(self, guard: Guard, entry: Entry, key: str, cost: int) -> None:
        # Whether it was given back or settled.
        self.returned = False
        self.guard = guard
        self.entry = entry
        self.key = key
        self.cost = cost


class Ticket:
    """What came of asking for a request: the Decision, and what is to be done when it is over."""

    __slots__ = ("_charges", "decision", "decisions", "denied", "guard", "holds", "refunds", "settles")

    def __init__(
        self, decision: Decision, guard: Guard, charges: Sequence[Charge] | None, holds: Sequence[Any] = ()
    ) -> None:
        self.decision = decision
        # All that the answer tells about.
        self.decisions: Sequence[Decision] = (decision,)
        self.denied = not decision
        self.guard = guard
        self._charges = charges
        self.holds = holds
        # Whether something is left to do when the answer is known, and when it is over.
        if charges is None:
            self.refunds, self.settles = guard.refunds, guard.settles
        else:
            self.refunds = any(charge.guard.refunds for charge in charges)
            self.settles = any(charge.guard.settles for charge in charges)

    @property
    def charges(self) -> Sequence[Charge]:
        """What was charged; of a guard with a desk the Decision says it, should anybody ask."""
        if self._charges is None:
            told = self.decision
            self._charges = (Charge(self.guard, self.guard.entry, told.key, told.cost),) if told else ()
        return self._charges

    def release(self) -> None:
        """Gives back what is held while the request runs; nothing waits for it."""
        holds, self.holds = self.holds, ()
        for hold in holds:
            released = hold.release()
            if released is not None:
                # An async hold is on its way at once; the coroutine only says so.
                released.close()


def checked_key(entry: Entry, key: Any) -> str:
    """The key, when it is one."""
    if isinstance(key, str):
        return entry.prefix + key
    told = "nothing (None)" if key is None else f"{key!r} ({type(key).__name__})"
    raise KeyInvalid(f"the key function {entry.name} returned {told}: a key is text (str)")


def checked_cost(entry: Entry, cost: Any) -> int:
    """The cost, when it is one."""
    if isinstance(cost, int) and not isinstance(cost, bool):
        return cost
    raise CostError(f"the cost of {entry.name} is {cost!r} ({type(cost).__name__}): it must be a whole number")


def admit_simply(guard: Guard, desk: Desk, request: Request, limiter: Limiter) -> list[tuple[str, str]] | Ticket:
    """The same as `admit` of one guard that has a desk, without its detours: the fields of the answer to one who may
    go, or the ticket of one who was refused."""
    who = guard.who(request)
    if who:
        told = desk.ask(limiter, who)
        return told if isinstance(told, list) else Ticket(told, guard, None)
    # A peer without an address, which is worth a word.
    entry = guard.entry
    decision = limiter.check(entry.policy, entry.prefix + entry.key(request), entry.cost)
    return guard.headers.text(decision) if decision else Ticket(decision, guard, None)


def admit(guards: Sequence[Guard], request: Request, method: str | None) -> Steps[Ticket | None]:
    """Asks for a request. None: nothing limits it."""
    charges: list[Charge] = []
    for guard in guards:
        if guard.methods is not None and method not in guard.methods:
            continue
        if guard.skip is not None and (yield from waited(guard.skip(request))):
            continue
        for entry in guard.entries:
            key = checked_key(entry, (yield from waited(entry.key(request))))
            cost = entry.cost
            if not isinstance(cost, int):
                cost = checked_cost(entry, (yield from waited(cost(request))))
            charges.append(Charge(guard, entry, key, cost))
    if not charges:
        return None
    return (yield from _ask(charges))


def _ask(charges: list[Charge]) -> Steps[Ticket]:
    """All or nothing, in one round trip; what is held is asked for after what is charged."""
    plain = [charge for charge in charges if not charge.entry.holds]
    decision: Decision | None = None
    if len(plain) == 1:
        decision = yield "check", (plain[0].entry.policy, plain[0].key, plain[0].cost)
    elif plain:
        decision = yield "check_all", ([(charge.entry.policy, charge.key, charge.cost) for charge in plain],)
    if decision is not None and not decision:
        return Ticket(decision, _refuser(decision, plain), ())
    holds: list[Any] = []
    for charge in charges:
        if not charge.entry.holds:
            continue
        try:
            hold = yield "hold", (charge.entry.policy, charge.key, charge.cost)
        except RateLimited as denied:
            ticket = Ticket(denied.decision, charge.guard, (), holds)
            ticket.release()
            yield from give_back(plain)
            return ticket
        holds.append(hold)
        decision = hold.decision if decision is None else decision
    assert decision is not None
    ticket = Ticket(decision, charges[0].guard, plain, holds)
    ticket.decisions = [*([decision] if plain else []), *(hold.decision for hold in holds)]
    delay = max([decision.delay, *(hold.decision.delay for hold in holds)])
    if delay:
        try:
            yield "sleep", delay
        except BaseException:
            ticket.release()
            raise
    return ticket


def _refuser(decision: Decision, charges: list[Charge]) -> Guard:
    for one, charge in zip(decision.decisions, charges, strict=False):
        if not one:
            return charge.guard
    return charges[0].guard


def give_back(charges: Iterable[Charge]) -> Steps[None]:
    """As if it had not been asked for."""
    for charge in charges:
        yield "refund", (charge.entry.policy, charge.key, charge.cost)


def refund(ticket: Ticket, request: Request, response: Response) -> Steps[None]:
    """When the answer is known: gives back what `refund_when` says."""
    for charge in ticket.charges:
        when = charge.guard.refund_when
        if when is None or charge.returned or _decision(ticket, charge).shadow:
            continue
        if (yield from waited(when(request, response))):
            charge.returned = True
            yield from give_back((charge,))


def settle(ticket: Ticket, request: Request, response: Response) -> Steps[None]:
    """When the work is done: charges what it came to, as `settle` says. None leaves it as it is."""
    for charge in ticket.charges:
        actual = charge.guard.settle
        if actual is None or charge.returned or _decision(ticket, charge).shadow:
            continue
        charge.returned = True
        cost = yield from waited(actual(request, response))
        if cost is None:
            continue
        if checked_cost(charge.entry, cost) == 0:
            yield from give_back((charge,))
        elif cost != charge.cost:
            yield "settle", (_decision(ticket, charge), cost)


def _decision(ticket: Ticket, charge: Charge) -> Decision:
    if not ticket.decision.decisions:
        return ticket.decision
    return ticket.decision.decisions[ticket.charges.index(charge)]
