"""The behaviour of every web layer, each run through the same tests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tidegate import CostError, KeyInvalid, Limiter, ManualClock, Policy, PolicyError, TidegateError
from tidegate.http import claim, client_ip, fixed, header
from web_adapters import Adapter, LimitedApp

QUOTA = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def test_a_limit_is_enforced_and_announced(adapter: Adapter, clock: ManualClock) -> None:
    made = adapter.make("login", policies={"login": "gcra 20/minute"}, clock=clock)
    seen = made.get()
    assert (seen.status, seen.body) == (200, b"ok")
    assert seen.items("RateLimit-Policy") == {"login": {"q": 20, "w": 60}}
    assert seen.items("RateLimit") == {"login": {"r": 19, "t": 3}}
    assert seen["X-RateLimit-Limit"] == "20"
    assert seen["X-RateLimit-Remaining"] == "19"
    assert seen["X-RateLimit-Reset"] == "1700000003"
    assert "Retry-After" not in seen
    for _ in range(19):
        assert made.get().status == 200
    seen = made.get()
    assert seen.status == 429
    assert seen["Content-Type"].startswith("application/problem+json")
    assert seen["Retry-After"] == "3"
    assert seen.items("RateLimit") == {"login": {"r": 0, "t": 3}}
    problem = json.loads(seen.body)
    assert (problem["type"], problem["status"], problem["violated-policies"]) == (QUOTA, 429, ["login"])
    # The announced time is right: after it one more request is admitted.
    clock.advance(3)
    assert made.get().status == 200
    assert made.get().status == 429


def test_a_notation_in_place(adapter: Adapter) -> None:
    made = adapter.make("2/minute; 100/hour")
    assert [made.get().status for _ in range(3)] == [200, 200, 429]


def test_a_policy_in_place(adapter: Adapter) -> None:
    made = adapter.make(Policy("2/minute", name="two"))
    assert [made.get().status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("which", ["both", "ietf", "ietf-10", "ietf-11", "legacy", "off"])
def test_headers(adapter: Adapter, which: str) -> None:
    made = adapter.make("1/minute", headers=which)
    for status in (200, 429):
        seen = made.get()
        assert seen.status == status
        assert ("RateLimit" in seen) == ("RateLimit-Policy" in seen) == (which == "both" or which.startswith("ietf"))
        assert ("X-RateLimit-Limit" in seen) == ("X-RateLimit-Reset" in seen) == (which in ("both", "legacy"))
        assert ("Retry-After" in seen) == (status == 429)


def test_keys(adapter: Adapter) -> None:
    made = adapter.make("1/minute", key=lambda request: adapter.header(request, "X-Who"))
    assert made.get(headers={"X-Who": "a"}).status == 200
    assert made.get(headers={"X-Who": "a"}).status == 429
    assert made.get(headers={"X-Who": "b"}).status == 200


def test_the_helper_header_hashes(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "1/minute"})
    made = adapter.make("p", key=header("X-API-Key"), limiter=limiter)
    assert made.get(headers={"X-API-Key": "tg_live_0123456789"}).status == 200
    assert limiter.peek("p", "tg_live_0123456789").remaining == 1
    assert limiter.peek("p", "6d72fc626396c0ae1e25873ad472ee79").remaining == 0
    # Without the header the address is the key.
    assert made.get().status == 200
    assert limiter.peek("p", "anonymous:203.0.113.9").remaining == 0
    assert made.get().status == 429


def test_the_helper_claim_takes_a_function(adapter: Adapter) -> None:
    key = claim("sub", of=lambda request: {"sub": adapter.header(request, "X-Who")})
    limiter = Limiter(policies={"p": "1/minute"})
    made = adapter.make("p", key=key, limiter=limiter)
    assert made.get(headers={"X-Who": "alice"}).status == 200
    assert limiter.peek("p", "alice").remaining == 0


def test_the_helper_client_ip(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "1/minute"})
    made = adapter.make("p", key=client_ip(trusted_proxies=["203.0.113.0/24"]), limiter=limiter)
    assert made.get(headers={"X-Forwarded-For": "9.9.9.9, 2001:db8::7"}).status == 200
    assert limiter.peek("p", "2001:db8::/64").remaining == 0
    made = adapter.make("p", limiter=limiter)
    assert made.get(headers={"X-Forwarded-For": "9.9.9.9"}).status == 200
    assert limiter.peek("p", "203.0.113.9").remaining == 0


def test_the_clients_of_a_unix_domain_socket_are_one(adapter: Adapter) -> None:
    peerless: dict[str, Any] = {"client": None, "server": ("/run/app.sock", None)}
    if "wsgi" in call_of(adapter):
        peerless = {"REMOTE_ADDR": "", "SERVER_NAME": "/run/app.sock"}
    limiter = Limiter(policies={"p": "2/minute"})
    made = adapter.make("p", limiter=limiter)
    assert [made.get(**peerless).status for _ in range(3)] == [200, 200, 429]
    assert limiter.peek("p", "unix").remaining == 0
    assert made.get().status == 200


def test_a_peer_without_an_address_is_refused(adapter: Adapter) -> None:
    peerless: dict[str, Any] = {"REMOTE_ADDR": ""} if "wsgi" in call_of(adapter) else {"client": None}
    made = adapter.make("2/minute", key=client_ip(trusted_proxies=["unix"]))
    refused(made, "does not know the address", **peerless)


def refused(made: LimitedApp, says: str, **more: Any) -> None:
    """The framework's error handlers or the caller get the error, and no request is admitted."""
    status: int | None = None
    try:
        status = made.get(**more).status
    except KeyInvalid as error:
        assert says in str(error)
    assert status in (None, 500)


def call_of(adapter: Adapter) -> str:
    """Returns the name of the function that calls its application."""
    return adapter.make("1/minute").call.__name__


def test_costs(adapter: Adapter) -> None:
    made = adapter.make("10/minute", cost=4)
    assert [made.get()["X-RateLimit-Remaining"] for _ in range(2)] == ["6", "2"]
    assert made.get().status == 429
    made = adapter.make("10/minute", cost=lambda request: int(adapter.header(request, "X-Cost") or 1))
    assert made.get(headers={"X-Cost": "7"})["X-RateLimit-Remaining"] == "3"
    seen = made.get(headers={"X-Cost": "11"})
    assert seen.status == 429
    assert "Retry-After" not in seen, "waiting does not help"


def test_skip(adapter: Adapter) -> None:
    made = adapter.make("1/minute", skip=lambda request: adapter.header(request, "X-Skip") == "yes")
    for _ in range(3):
        seen = made.get(headers={"X-Skip": "yes"})
        assert seen.status == 200 and "RateLimit" not in seen
    assert [made.get().status for _ in range(2)] == [200, 429]


def test_methods(adapter: Adapter) -> None:
    made = adapter.make("1/minute", methods=["post"])
    assert [made.get(method="GET").status for _ in range(3)] == [200] * 3
    assert [made.get(method="POST").status for _ in range(2)] == [200, 429]


def test_on_denied(adapter: Adapter) -> None:
    denied: list[Any] = []

    def on_denied(request: Any, decision: Any) -> Any:
        denied.append((adapter.header(request, "X-Who"), decision.allowed))
        return adapter.denial()

    made = adapter.make("1/minute", on_denied=on_denied)
    assert made.get().status == 200
    seen = made.get(headers={"X-Who": "me"})
    assert (seen.status, seen.body) == (418, b"slow down")
    assert denied == [("me", False)]
    # Every response has the header fields.
    assert seen["Retry-After"] and seen.items("RateLimit")


def test_the_body_names_a_policy_as_the_fields_do(adapter: Adapter) -> None:
    for name in ("ü", 'a"b\\c', "é50%"):
        made = adapter.make([name, "9/minute"], policies={name: "0/minute; 5/s"})
        seen = made.get()
        violated = json.loads(seen.body)["violated-policies"]
        assert violated == [item for item in seen.items("RateLimit-Policy") if item.endswith("-1")], name
        lost = {"store": "redis://127.0.0.1:1/0", "on_store_error": "raise"}
        seen = adapter.make(name, policies={name: "0/minute; 5/s"}, **lost).get()
        assert json.loads(seen.body)["violated-policies"] == list(seen.items("RateLimit-Policy")), name


@pytest.mark.parametrize(("available", "status"), [(True, 429), (False, 503)])
def test_what_on_denied_returns_without_a_status_is_a_refusal(adapter: Adapter, available: bool, status: int) -> None:
    limiter = Limiter() if available else Limiter("redis://127.0.0.1:1/0", on_store_error="closed")
    made = adapter.make("0/minute", limiter=limiter, on_denied=lambda request, decision: adapter.plain_denial())
    seen = made.get()
    assert (seen.status, seen.body) == (status, b"slow down")
    seen = adapter.make("0/minute", limiter=limiter, on_denied=lambda request, decision: adapter.denial()).get()
    assert seen.status == 418


def test_on_denied_may_return_nothing(adapter: Adapter) -> None:
    made = adapter.make("1/minute", on_denied=lambda decision: None)
    assert [made.get().status for _ in range(2)] == [200, 429]


def test_refund_when(adapter: Adapter) -> None:
    status = iter([304, 304, 304, 200, 304])
    limiter = Limiter(policies={"p": "1/minute"})
    made = adapter.make(
        "p",
        view=lambda: (next(status), b""),
        limiter=limiter,
        refund_when=lambda response: response.status_code == 304,
    )
    assert [made.get().status for _ in range(4)] == [304, 304, 304, 200]
    assert made.get().status == 429


def test_settle(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "100/minute"})

    def actual(request: Any, response: Any) -> int | None:
        assert response.status_code == 200
        given = adapter.header(request, "X-Actual")
        return None if given is None else int(given)

    made = adapter.make("p", limiter=limiter, cost=10, settle=actual)
    for given, remaining in (("30", 70), ("3", 67), ("0", 67), (None, 57)):
        assert made.get(headers={} if given is None else {"X-Actual": given}).status == 200
        assert limiter.peek("p", "203.0.113.9").remaining == remaining


def test_several_policies_in_one_step(adapter: Adapter) -> None:
    limiter = Limiter(policies={"user": "2/minute", "all": "10/minute"})
    client = lambda request: adapter.header(request, "X-Who")  # noqa: E731
    made = adapter.make([("user", client), ("all", fixed("everyone"), 2)], limiter=limiter)
    seen = made.get(headers={"X-Who": "a"})
    assert set(seen.items("RateLimit")) == set(seen.items("RateLimit-Policy")) == {"user", "all"}
    assert made.get(headers={"X-Who": "a"}).status == 200
    seen = made.get(headers={"X-Who": "a"})
    assert seen.status == 429
    assert json.loads(seen.body)["violated-policies"] == ["user"]
    # All or nothing: a request that one policy denies is not charged to the other.
    assert limiter.peek("all", "everyone").remaining == 6


def test_a_hold_lasts_as_long_as_the_request(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})
    during: list[int] = []

    def view() -> Any:
        during.append(limiter.peek("p", "203.0.113.9").remaining)
        return 200, b"ok"

    made = adapter.make("p", view=view, limiter=limiter)
    for _ in range(3):
        seen = made.get()
        assert seen.status == 200
        assert seen.items("RateLimit-Policy") == {"p": {"q": 1, "qu": "concurrent-requests"}}
        assert limiter.peek("p", "203.0.113.9").remaining == 1
    assert during == [0, 0, 0]
    with limiter.hold("p", "203.0.113.9"):
        assert made.get().status == 429
    assert made.get().status == 200


def test_a_hold_lasts_as_long_as_the_stream(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})

    def part() -> bytes:
        return str(limiter.peek("p", "203.0.113.9").remaining).encode()

    made = adapter.make("p", view=lambda: (200, [part, part, part]), limiter=limiter)
    for _ in range(2):
        assert made.get().body == b"000"
        assert limiter.peek("p", "203.0.113.9").remaining == 1


def test_a_hold_ends_when_the_view_fails(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1"})

    def view() -> Any:
        raise ZeroDivisionError

    made = adapter.make("p", view=view, limiter=limiter)
    with contextlib.suppress(ZeroDivisionError):
        made.get()
    assert limiter.peek("p", "203.0.113.9").remaining == 1


def test_a_hold_and_other_policies(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "concurrency 1", "q": "5/minute"})
    made = adapter.make(["p", "q"], limiter=limiter)
    seen = made.get()
    assert set(seen.items("RateLimit")) == {"p", "q"}
    with limiter.hold("p", "203.0.113.9"):
        assert made.get().status == 429
    # A denial by one policy charges nothing to the other.
    assert limiter.peek("q", "203.0.113.9").remaining == 4


def test_a_leaky_bucket_delays_requests(adapter: Adapter) -> None:
    import time

    made = adapter.make("leaky-bucket 20/s burst 10")
    began = time.monotonic()
    assert [made.get().status for _ in range(4)] == [200] * 4
    assert time.monotonic() - began >= 0.14


def test_a_missing_store_is_503_when_the_policy_says_closed(adapter: Adapter) -> None:
    made = adapter.make("1/minute", store="redis://127.0.0.1:1/0", on_store_error="closed")
    seen = made.get()
    assert seen.status == 503
    assert seen["Content-Type"].startswith("application/problem+json")
    assert json.loads(seen.body)["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    assert int(seen["Retry-After"]) >= 1
    assert "RateLimit" not in seen, "the store that knows is missing"


def test_a_missing_store_is_replaced_by_memory_by_default(adapter: Adapter) -> None:
    made = adapter.make("1/minute", store="redis://127.0.0.1:1/0")
    assert [made.get().status for _ in range(2)] == [200, 429]


def test_a_shadow_policy_denies_no_request(adapter: Adapter) -> None:
    made = adapter.make(Policy("1/minute", shadow=True))
    for _ in range(3):
        seen = made.get()
        assert seen.status == 200 and "RateLimit" not in seen


@pytest.mark.parametrize("key", [lambda request: None, lambda request: 7, lambda request: b"bytes"])
def test_a_key_function_that_returns_no_text_raises(adapter: Adapter, key: Any) -> None:
    refused(adapter.make("1/minute", key=key), "key function")


def test_a_cost_that_is_no_whole_number_raises(adapter: Adapter) -> None:
    made = adapter.make("1/minute", cost=lambda request: 1.5)
    try:
        assert made.get().status == 500
    except CostError as error:
        assert "whole number" in str(error)


def test_wrong_options_raise_where_they_are_written(adapter: Adapter) -> None:
    with pytest.raises(TidegateError, match="both, ietf, ietf-10, ietf-11, legacy, off"):
        adapter.make("1/minute", headers="all")
    with pytest.raises(TidegateError, match="trusts every address"):
        client_ip(trusted_proxies=["0.0.0.0/0"])
    with pytest.raises(TidegateError, match="must be a list"):
        adapter.make("1/minute", methods="GET")
    with pytest.raises(TidegateError):
        adapter.make("1/minute", key=lambda a, b: "x")
    with pytest.raises(TidegateError):
        adapter.make([])
    with pytest.raises(TidegateError, match="function of the request"):
        adapter.make("1/minute", skip=True)


def test_wrong_policies_raise(adapter: Adapter) -> None:
    with pytest.raises(PolicyError):
        # Django reads its settings with the first request.
        adapter.make("20 per fortnight").get()
    with pytest.raises(PolicyError):
        adapter.make("nope").get()
