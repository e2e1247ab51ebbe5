"""The charges and refunds of every web layer for a policy with a concurrency limit, alone or beside others."""

from __future__ import annotations

from typing import Any

from tidegate import Limiter, ManualClock, Policy
from web_adapter import Adapter

ADDRESS = "203.0.113.9"


def used(limiter: Limiter, policy: str) -> list[int]:
    """Returns the used units of each limit of a policy."""
    return [limit.limit - limit.remaining for limit in limiter.peek(policy, ADDRESS).limits]


def test_refund_when_gives_back_what_a_policy_with_a_hold_charged(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "5/minute; concurrency 2"}, clock=ManualClock())
    given: list[int] = []
    made = adapter.make(
        "p",
        view=lambda: (given[-1], b""),
        limiter=limiter,
        refund_when=lambda response: response.status_code == 304,
    )
    for status, left in ((304, 0), (304, 0), (200, 1), (304, 1)):
        given.append(status)
        assert made.get().status == status
        assert used(limiter, "p") == [left, 0]


def test_settle_corrects_what_a_policy_with_a_hold_charged(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "100/minute; concurrency 20", "q": "100/minute"}, clock=ManualClock())

    def actual(request: Any, response: Any) -> int | None:
        given = adapter.header(request, "X-Actual")
        return None if given is None else int(given)

    made = adapter.make(["p", "q"], limiter=limiter, cost=10, settle=actual)
    for given, total in (("30", 30), ("3", 33), ("0", 33), (None, 43)):
        assert made.get(headers={} if given is None else {"X-Actual": given}).status == 200
        assert used(limiter, "p") == [total, 0]
        assert used(limiter, "q") == [total]


def test_nothing_of_a_lone_concurrency_limit_is_left_to_give_back(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 2"}, clock=ManualClock())
    made = adapter.make("p", limiter=limiter, refund_when=lambda: True, settle=lambda: 7)
    for _ in range(3):
        assert made.get().status == 200
        assert used(limiter, "p") == [0]


def test_a_refused_hold_gives_nothing_back_to_a_shadow_policy_that_was_not_charged(adapter: Adapter) -> None:
    limiter = Limiter(
        policies={"s": Policy("2/minute", shadow=True), "p": "concurrency 1", "q": "9/minute"}, clock=ManualClock()
    )
    limiter.charge("s", ADDRESS, 2)
    made = adapter.make(["s", "p", "q"], limiter=limiter)
    with limiter.hold("p", ADDRESS):
        for _ in range(3):
            assert made.get().status == 429
    assert (used(limiter, "s"), used(limiter, "q")) == ([2], [0])


def test_a_denial_gives_nothing_back_to_a_shadow_hold_that_was_not_charged(adapter: Adapter) -> None:
    limiter = Limiter(
        policies={"s": Policy("2/minute; concurrency 9", shadow=True), "q": "1/minute"}, clock=ManualClock()
    )
    limiter.charge("q", ADDRESS, 1)
    limiter.hold("s", ADDRESS, 2).release()
    assert used(limiter, "s") == [2, 0]
    made = adapter.make(["s", "q"], limiter=limiter)
    for _ in range(2):
        assert made.get().status == 429
    assert used(limiter, "s") == [2, 0]


def test_a_denial_after_a_hold_takes_back_the_hold_and_what_its_policy_charged(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "5/minute; concurrency 2", "q": "1/minute"}, clock=ManualClock())
    made = adapter.make(["p", "q"], limiter=limiter)
    assert [made.get().status for _ in range(3)] == [200, 429, 429]
    assert (used(limiter, "p"), used(limiter, "q")) == ([1, 0], [1])


def test_a_refused_second_hold_takes_back_the_first(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "5/minute; concurrency 2", "r": "concurrency 1"}, clock=ManualClock())
    made = adapter.make(["p", "r"], limiter=limiter)
    with limiter.hold("r", ADDRESS):
        assert [made.get().status for _ in range(3)] == [429] * 3
    assert used(limiter, "p") == [0, 0]
    assert made.get().status == 200


def test_a_refused_hold_is_never_preceded_by_a_charge(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1", "q": Policy("9/minute", journal=10)}, clock=ManualClock())
    made = adapter.make(["q", "p"], limiter=limiter)
    with limiter.hold("p", ADDRESS):
        assert made.get().status == 429
    # The journal has every attempt, even one that was taken back. So the layer did not ask this policy.
    assert limiter.journal("q", ADDRESS) == []
    assert made.get().status == 200
    assert len(limiter.journal("q", ADDRESS)) == 1


def test_a_policy_whose_cost_is_nothing_is_neither_asked_nor_announced(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "5/minute", "q": "9/minute"}, clock=ManualClock())
    for skipped, asked in (("p", "q"), ("q", "p")):
        costs = {skipped: lambda *_: 0, asked: lambda *_: 2}
        before = used(limiter, asked)[0]
        answer = adapter.make([(name, None, costs[name]) for name in ("p", "q")], limiter=limiter).get()
        assert (answer.status, list(answer.items("RateLimit-Policy"))) == (200, [asked])
        assert used(limiter, asked) == [before + 2]
