"""The edges of every web layer: no limit is silently weaker, or silently stricter, than it is written."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tidegate import ConfigError, KeyInvalid, Limiter, ManualClock, Policy
from tidegate.http import claim, client_ip, fixed, header, placed_key, user
from web_adapter import Adapter

ADDRESS = "203.0.113.9"


def used(limiter: Limiter, policy: str, key: str = ADDRESS) -> list[int]:
    """Returns the used units of each limit of a policy."""
    return [limit.limit - limit.remaining for limit in limiter.peek(policy, key).limits]


@pytest.mark.parametrize("key", ["user", "app.keys.client", "all"])
def test_a_text_is_no_key(adapter: Adapter, key: str) -> None:
    with pytest.raises(ConfigError, match=r"fixed\('" + key):
        adapter.make("1/minute", key=key)
    with pytest.raises(ConfigError, match=r"fixed\('" + key):
        adapter.make(["1/minute", ("9/minute", key)])


def test_fixed_is_one_budget_for_all(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "2/minute"})
    made = adapter.make("p", key=fixed("all"), limiter=limiter)
    assert [made.get().status for _ in range(3)] == [200, 200, 429]
    assert used(limiter, "p", "all") == [2]
    for wrong in (7, None, "\ud800", ""):
        with pytest.raises(ConfigError, match="fixed"):
            fixed(wrong)  # type: ignore[arg-type]
    with pytest.raises(KeyInvalid, match="70000 bytes"):
        fixed("k" * 70_000)


@pytest.mark.parametrize("given", [client_ip, user, header, fixed])
def test_a_key_helper_is_called(adapter: Adapter, given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"key helper .*{given.__name__}\("):
        adapter.make("1/minute", key=given)
    with pytest.raises(ConfigError, match=rf"key=.*{given.__name__}\("):
        adapter.make(given)
    with pytest.raises(ConfigError, match=r"key=client_ip\(\)"):
        adapter.make(client_ip())


@pytest.mark.parametrize("key", ["half \ud800", "k" * 70_000])
def test_a_key_that_a_client_made_unusable_is_a_bad_request(adapter: Adapter, key: str) -> None:
    limiter = Limiter(policies={"p": "1/minute", "q": "1/minute", "r": "concurrency 1; 9/minute"})
    for policy in ("p", ["q", "p"], ["r", "q"]):
        made = adapter.make(policy, key=lambda request: key, limiter=limiter)
        seen = made.get()
        assert (seen.status, seen["Content-Type"]) == (400, "application/problem+json")
        assert json.loads(seen.body)["status"] == 400
        assert b"half" not in seen.body and b"kkk" not in seen.body
        assert seen["Cache-Control"] == "no-store"


def test_a_cost_of_0_skips_the_charge(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "10/minute", "q": "10/minute", "h": "concurrency 9"}, clock=ManualClock())

    def size(request: Any) -> int:
        return int(adapter.header(request, "X-Size") or 1)

    made = adapter.make("p", cost=size, limiter=limiter)
    seen = made.get(headers={"X-Size": "0"})
    assert seen.status == 200 and "RateLimit" not in seen
    made = adapter.make([("p", None, size), "q", ("h", None, size)], limiter=limiter, settle=lambda: [0, None, 3])
    assert made.get(headers={"X-Size": "0"}).status == 200
    assert (used(limiter, "p"), used(limiter, "q")) == ([0], [1])
    assert made.get(headers={"X-Size": "4"}).status == 200
    assert (used(limiter, "p"), used(limiter, "q")) == ([0], [2])


def test_one_number_settles_only_what_names_a_cost(adapter: Adapter) -> None:
    limiter = Limiter(policies={"rpm": "60/minute", "tpm": "1000/minute", "c": "concurrency 2"}, clock=ManualClock())
    made = adapter.make(["rpm", ("tpm", None, 500), ("c", None, 2)], limiter=limiter, settle=lambda: 300)
    assert made.get().status == 200
    assert (used(limiter, "rpm"), used(limiter, "tpm"), used(limiter, "c")) == ([1], [300], [0])
    made = adapter.make(["rpm", "c", "tpm"], limiter=limiter, settle=lambda: 5)
    assert made.get().status == 200
    assert (used(limiter, "rpm"), used(limiter, "tpm"), used(limiter, "c")) == ([6], [305], [0])


@pytest.mark.parametrize("given", [{"tpm": 300, "c": 7}, [None, 300, None], (None, 300, 9)])
def test_a_map_or_a_list_settles_each(adapter: Adapter, given: Any) -> None:
    limiter = Limiter(policies={"rpm": "60/minute", "tpm": "1000/minute", "c": "concurrency 2"}, clock=ManualClock())
    made = adapter.make(["rpm", ("tpm", None, 500), "c"], limiter=limiter, settle=lambda: given)
    for number in (1, 2):
        assert made.get().status == 200
        assert (used(limiter, "rpm"), used(limiter, "tpm"), used(limiter, "c")) == ([number], [300 * number], [0])


async def later() -> int:
    return 7


@pytest.mark.parametrize("body", [b"ok", [b"o", b"k"]], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "given", [lambda: 1 // 0, lambda: -1, lambda: "3", lambda: [1, 2], lambda: {"q": 1}, later], ids=range(6)
)
def test_a_settle_that_fails_changes_no_response(
    adapter: Adapter, given: Any, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(policies={"p": "100/minute"}, clock=ManualClock())
    # An async function is an error where it is written. So a plain function returns its coroutine.
    settle = (lambda: later()) if given is later else given
    made = adapter.make("p", view=lambda: (200, body), limiter=limiter, cost=10, settle=settle)
    with caplog.at_level(logging.ERROR, "tidegate.http"):
        seen = made.get()
    assert (seen.status, seen.body) == (200, b"ok")
    runs = given is later and (adapter.awaits or "Site" in type(adapter).__name__ or is_django(adapter))
    assert used(limiter, "p") == [7 if runs else 10]
    assert ("settle" in caplog.text) == (not runs)


def test_methods_with_get_limit_head_which_the_same_view_answers(adapter: Adapter) -> None:
    if adapter.make("9/minute").get(method="HEAD").status == 405:
        return  # FastAPI
    made = adapter.make("2/minute", methods=["GET"])
    assert [made.get(method=method).status for method in ("HEAD", "GET", "HEAD", "GET")] == [200, 200, 429, 429]


def is_django(adapter: Adapter) -> bool:
    return "django" in adapter.name or "rest framework" in adapter.name


def test_an_error_of_any_function_admits_no_request(adapter: Adapter) -> None:
    for error in (StopIteration, GeneratorExit, KeyError):
        for name in ("key", "cost", "skip", "meta", "policy"):
            ran: list[int] = []

            def fail(request: Any, error: Any = error) -> Any:
                raise error

            def view(ran: list[int] = ran) -> Any:
                ran.append(1)
                return 200, b"ok"

            options: dict[str, Any] = {name: fail} if name != "policy" else {}
            made = adapter.make(fail if name == "policy" else "1/minute", view=lambda: view(), **options)
            try:
                assert made.get().status == 500
            except BaseException as raised:
                assert isinstance(raised, (error, RuntimeError)), raised
            assert ran == [], (name, error)


def test_hold_until_is_one_of_two(adapter: Adapter) -> None:
    with pytest.raises(ConfigError, match="hold_until must be 'response' or 'handler'"):
        adapter.make("concurrency 1", hold_until="body")
    for given in ("response", "handler"):
        limiter = Limiter(policies={"p": Policy("concurrency 1")})
        made = adapter.make("p", limiter=limiter, hold_until=given)
        assert [made.get().status for _ in range(2)] == [200, 200]
        assert used(limiter, "p") == [0]


def test_no_name_is_the_key_of_another_client(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "1/minute"})
    key = claim("sub", of=lambda request: {"sub": adapter.header(request, "X-Who")})
    made = adapter.make("p", key=key, limiter=limiter)
    names = [ADDRESS, f"anonymous:{ADDRESS}", f"name:{ADDRESS}", "John Smith", f"/login {ADDRESS}", '"" GET alice']
    for name in names:
        for status in (200, 429):
            assert made.get(headers={"X-Who": name}).status == status, name
    # The names do not use the budget of the address, neither of requests without a name nor of the plain address.
    assert [made.get().status for _ in range(2)] == [200, 429]
    by_address = adapter.make("p", limiter=limiter)
    assert [by_address.get().status for _ in range(2)] == [200, 429]
    assert used(limiter, "p", f"name:{ADDRESS}") == [1]
    made = adapter.make("p", key=key, limiter=limiter, per_method=True)
    assert made.get(headers={"X-Who": "alice"}).status == 200
    assert used(limiter, "p", placed_key(None, "alice", "get")) == [1]


def test_no_name_is_the_method_and_the_name_of_another(adapter: Adapter) -> None:
    limiter = Limiter()
    key = claim("sub", of=lambda request: {"sub": adapter.header(request, "X-Who")})
    # Both limits count at the same place.
    by_method = adapter.make("1/minute", key=key, limiter=limiter, per_method=True)
    by_name = adapter.make("1/minute", key=key, limiter=limiter)
    assert by_method.get(headers={"X-Who": "alice"}).status == 200
    assert [by_name.get(headers={"X-Who": "GET alice"}).status for _ in range(2)] == [200, 429]
    assert by_method.get(headers={"X-Who": "alice"}).status == 429


@pytest.mark.parametrize("given_back", [{"refund_when": lambda *_: True}, {"settle": lambda *_: 0}])
def test_a_late_refund_leaves_the_units_of_others(adapter: Adapter, given_back: Any) -> None:
    clock = ManualClock()
    limiter = Limiter(policies={"p": "fixed-window 3/minute"}, clock=clock)

    def view() -> Any:
        clock.advance(61)
        limiter.check("p", ADDRESS)
        return 200, b"ok"

    assert adapter.make("p", view=view, limiter=limiter, **given_back).get().status == 200
    assert limiter.peek("p", ADDRESS).remaining == 2


def test_a_function_that_returns_an_empty_key_is_called_once(adapter: Adapter) -> None:
    calls: list[str] = []

    def key(*_: Any) -> str:
        calls.append("key")
        return ""

    def cost(*_: Any) -> int:
        calls.append("cost")
        return 2

    for options, called in (({}, ["key"]), ({"cost": cost}, ["key", "cost"])):
        calls.clear()
        answer = adapter.make("5/minute", limiter=Limiter(), key=key, **options).get()
        assert (answer.status, calls) == (200, called)
