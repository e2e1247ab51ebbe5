"""The half that all web layers share: options, keys, admission, answers. It knows no framework.

What a limit means is decided by the core; whose request it is and what an answer says, too. A framework's file says how
its requests are read (a `Face`), when the limiter is asked, and how its responses are written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from ._functions import adapted, name_of
from ._keys import Face, Key, Read, Request, claim, client_ip, header, user
from ._steps import Steps, arun, run, waited
from ._tidegate import AsyncLimiter, Decision, Desk, Headers, Limiter, Policy, problem, status
from .errors import ConfigError, CostError, KeyInvalid, RateLimited

__all__ = [
    "OPTIONS",
    "Answer",
    "Face",
    "Guard",
    "Key",
    "Rule",
    "Steps",
    "Ticket",
    "admit",
    "admit_simply",
    "arun",
    "choose_limiter",
    "claim",
    "client_ip",
    "header",
    "refund",
    "run",
    "settle",
    "user",
]

Response: TypeAlias = Any
T = TypeVar("T")


# --- Options ----------------------------------------------------------------------------------------------------------


class Entry:
    """One policy of a rule, with its key and its cost. Only what the limiter knows says how it is asked."""

    __slots__ = ("cost", "holds", "key", "name", "policy", "prefix", "shapes")

    def __init__(self, policy: str | Policy, key: Read, name: str, cost: Any, known: Policy, scope: str) -> None:
        self.policy = policy
        self.key = key
        self.name = name
        self.cost = cost
        algorithms = {limit.algorithm for limit in known.limits}
        self.holds = "concurrency" in algorithms
        self.shapes = "leaky-bucket" in algorithms
        # A policy with a name is one limit wherever it is used. What was written in place is meant for this place: two
        # views with "5/minute" have five each.
        self.prefix = f"{scope} " if scope and known.name == str(known) else ""


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


class Guard:
    """A rule made ready for a limiter and a framework."""

    __slots__ = (
        "desk",
        "entries",
        "entry",
        "headers",
        "later",
        "methods",
        "on_denied",
        "refund_when",
        "refunds",
        "settle",
        "settles",
        "skip",
        "who",
    )

    def __init__(self, rule: Rule, limiter: Limiter | AsyncLimiter, face: Face) -> None:
        # A policy that makes no sense is told here, before the first request.
        self.entries = [
            Entry(policy, key.bind(face), repr(key), cost, limiter.policy(policy), rule.scope)
            for policy, key, cost in rule.policies
        ]
        self.headers, self.methods, self.skip = rule.headers, rule.methods, rule.skip
        self.on_denied, self.refund_when, self.settle = rule.on_denied, rule.refund_when, rule.settle
        self.refunds, self.settles = rule.refund_when is not None, rule.settle is not None
        # Whether there may be something to do when the answer is known, or over.
        self.later = self.refunds or self.settles or any(entry.holds for entry in self.entries)
        first = self.entry = self.entries[0]
        # One policy, one check, and nothing to call but the key, which is what nearly every request needs: then one
        # native call is all, and `who` is what it is given.
        key: Key = rule.policies[0][1]
        self.who = first.key if key.ip is None else face.peer
        self.desk: Desk | None = None
        detours = first.shapes or callable(first.cost) or self.skip is not None or self.methods is not None
        if len(self.entries) == 1 and key.plain and not (detours or self.later):
            self.desk = Desk(first.policy, first.prefix, first.cost, self.headers, key.ip)


def choose_limiter(kind: type[T], limiter: Limiter | AsyncLimiter | None, store: Any, options: dict[str, Any]) -> T:
    """The limiter that was given, else one of the options that a limiter has."""
    if limiter is None:
        make: Any = kind
        made: T = make(store, **options)
        return made
    if store is not None or options:
        names = ", ".join((["store"] if store is not None else []) + sorted(options))
        raise ConfigError(f"a limiter was given, and {names} as well: a limiter has them already")
    if isinstance(limiter, kind):
        return limiter
    other: Any = limiter.to_async() if isinstance(limiter, Limiter) else limiter.to_blocking()
    if not isinstance(other, kind):
        raise ConfigError(f"limiter is a Limiter or an AsyncLimiter, not {limiter!r}")
    return other


# --- Admission --------------------------------------------------------------------------------------------------------


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


class Answer:
    """The answer to a refused request, for frameworks to write."""

    __slots__ = ("body", "fields", "status")

    def __init__(self, ticket: Ticket) -> None:
        self.status = status(ticket.decision)
        self.body = problem(ticket.decision).encode()
        self.fields = [
            ("Content-Type", "application/problem+json"),
            ("Content-Length", str(len(self.body))),
            # Nobody else must be told that it was too much.
            ("Cache-Control", "no-store"),
        ]


# What a rule asks for while it runs, and what it gets: a call of the limiter by name, or an awaitable to wait for. One
# text of the rules then serves threads and event loops.


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
