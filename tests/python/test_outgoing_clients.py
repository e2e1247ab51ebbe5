"""Outgoing calls behave the same with every client: real clients against servers that keep their own books."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import quote

import pytest

from outgoing_clients import paced_policy, until, used
from strict_services import StrictServer, StrictService
from tidegate import CostError, Decision, Limiter, Policy, RateLimited
from tidegate.outgoing import SettleReader

# A bucket that gives back no unit while a test runs.
SLOW = "token-bucket 10/hour"


def test_a_request_goes_out_as_it_is(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, SLOW) as client:
        answer = client.call("POST", f"{service.url}/a?b=c", headers={"X-Mine": "kept"}, content=b"\x00body")
        seen = json.loads(answer.body)
        assert (seen["method"], seen["target"], seen["body"]) == ("POST", "/a?b=c", "\x00body")
        assert ["X-Mine", "kept"] in seen["headers"] or ["x-mine", "kept"] in seen["headers"]
        assert not any("tidegate" in name.lower() for name, _ in seen["headers"])
        assert used(limiter, SLOW, service.url) == [1]


def test_it_waits_for_its_turn(outgoing: Any, service: StrictService) -> None:
    policy = "gcra 10/s burst 1"
    with Limiter() as limiter, outgoing(limiter, policy) as client:
        assert [client.get(service.url).status for _ in range(4)] == [200] * 4
        assert [answer.status for answer in client.gather([service.url] * 4)] == [200] * 4
        times = [one["at"] for one in service.requests()]
        # The turns span 0.7 s. The service sees each request a little after its turn.
        assert times[-1] - times[0] > 0.6


def test_a_wait_beyond_the_timeout_is_an_error_before_anything_is_sent(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, "1/hour", timeout=0.2) as client:
        assert client.get(service.url).status == 200
        with pytest.raises(RateLimited) as raised:
            client.get(service.url)
        decision = raised.value.decision
        assert decision.key == f"out:{service.url}"
        assert decision.retry_after is not None and decision.retry_after > 3000
        assert len(service.requests()) == 1


def test_a_refusal_becomes_a_response(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, "1/hour", timeout=0, respond=True) as client:
        assert client.get(service.url).status == 200
        refused = client.get(service.url)
        assert refused.status == 429
        assert refused.headers["x-should-retry"] == "false"
        assert 3000 < int(refused.headers["retry-after"]) <= 3800
        assert refused.headers["content-type"] == "application/problem+json"
        assert json.loads(refused.body)["violated-policies"] == ["1/hour"]
        assert len(service.requests()) == 1


def test_a_request_that_never_fits_says_so(outgoing: Any, service: StrictService) -> None:
    policy = "100 tokens/minute"
    with Limiter() as limiter:
        with outgoing(limiter, policy, cost={"tokens": 200}) as client:
            with pytest.raises(CostError, match="200 tokens"):
                client.get(service.url)
        with outgoing(limiter, policy, cost={"tokens": 200}, respond=True) as client:
            refused = client.get(service.url)
        assert (refused.status, refused.headers["x-should-retry"]) == (413, "false")
        assert "200 tokens" in json.loads(refused.body)["detail"]
        assert service.requests() == []


def test_the_key_is_the_origin(outgoing: Any, strict: StrictServer) -> None:
    one, two = strict.service(), strict.service()
    with Limiter() as limiter, outgoing(limiter, SLOW) as client:
        client.get(f"{one.url}/a")
        client.get(f"{one.url.replace('http', 'HTTP')}/b?c=d#e")
        client.get(two.url)
        assert used(limiter, SLOW, one.url) + used(limiter, SLOW, two.url) == [2, 1]


def test_options_may_be_functions_of_the_request(outgoing: Any, service: StrictService) -> None:
    costly = Policy("token-bucket 10/hour", priorities={"batch": "50%"}, name="costly")
    seen: list[Any] = []

    def policy(request: Any) -> Policy | None:
        seen.append((request.method, str(request.url), request.headers["x-user"], request.content))
        return None if request.headers["X-User"] == "free" else costly

    options: dict[str, Any] = {
        "key": lambda request: request.headers["X-User"],
        "cost": lambda request: len(request.content),
        "priority": lambda request: "batch",
        "timeout": 0,
        "learn": False,
    }
    with Limiter() as limiter, outgoing(limiter, policy, **options) as client:
        for user in ("alice", "free"):
            client.call("POST", service.url, headers={"X-User": user}, content=b"xyz")
        assert seen[0] == ("POST", service.url + "/" * seen[0][1].endswith("/"), "alice", b"xyz")
        assert used(limiter, costly, "alice") == [3]
        # The class has to leave half of the bucket free.
        with pytest.raises(RateLimited):
            client.call("POST", service.url, headers={"X-User": "alice"}, content=b"xyz")
        assert used(limiter, costly, "free") == [0]


def test_a_key_may_be_a_text_and_policies_have_names(outgoing: Any, service: StrictService) -> None:
    with Limiter(policies={"partner": SLOW}) as limiter:
        # A client accepts either kind of limiter.
        given = limiter if outgoing.is_async else limiter.to_async()
        with outgoing(given, "partner", key="all", cost=3, prefix="calls:") as client:
            client.get(service.url)
        assert limiter.peek(paced_policy(limiter, "partner"), "calls:all").limits[0].remaining == 6


def test_on_wait_is_told_before_a_request_waits(outgoing: Any, service: StrictService) -> None:
    told: list[tuple[Decision, float]] = []
    policy = "gcra 5/s burst 1"
    with Limiter() as limiter:
        with outgoing(limiter, policy, on_wait=lambda decision, seconds: told.append((decision, seconds))) as client:
            client.get(service.url)
            assert told == []
            limiter.block(paced_policy(limiter, policy), f"out:{service.url}", 0.3)
            client.get(service.url)
    [(decision, seconds)] = told
    assert not decision and decision.key == f"out:{service.url}"
    assert 0 < seconds <= 0.4


def test_what_could_not_connect_is_given_back(outgoing: Any, service: StrictService) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        policy = f"{SLOW}; 1000 tokens/hour"
        options: dict[str, Any] = {"cost": {"tokens": 100}}
        with Limiter() as limiter, outgoing(limiter, policy, **options) as client:
            with pytest.raises(client.connect_error):
                client.get(url)
            assert used(limiter, policy, url, {"tokens": 0}) == [0, 0]
        with Limiter() as limiter, outgoing(limiter, SLOW) as client:
            with pytest.raises(client.connect_error):
                client.get(url)
            assert used(limiter, SLOW, url) == [0]
            with pytest.raises(client.connect_error):
                client.get("http://nowhere.invalid")
            assert used(limiter, SLOW, "http://nowhere.invalid") == [0]


def test_what_may_have_arrived_is_not_given_back(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, SLOW) as client:
        with pytest.raises(client.read_error):
            client.call("POST", f"{service.url}/drop", content=b"x")
        assert used(limiter, SLOW, service.url) == [1]
        assert len(service.requests()) == 1


def test_redirects_are_calls_of_their_own_origin(outgoing: Any, strict: StrictServer) -> None:
    one, two = strict.service(), strict.service()
    with Limiter() as limiter, outgoing(limiter, SLOW) as client:
        answer = client.get(f"{one.url}/redirect?to={quote(two.url + '/end')}", follow=True)
        assert (answer.status, answer.url) == (200, f"{two.url}/end")
        client.call("POST", f"{one.url}/redirect?status=307&to={quote('/again')}", content=b"x", follow=True)
        assert used(limiter, SLOW, one.url) + used(limiter, SLOW, two.url) == [3, 1]
        assert one.targets()[-1] == "/again"


def test_a_hold_lasts_until_the_body_ends(outgoing: Any, service: StrictService) -> None:
    policy = "concurrency 2"
    with Limiter() as limiter, outgoing(limiter, policy, timeout=0) as client:

        def held() -> int:
            return used(limiter, policy, service.url)[0]

        assert client.get(service.url).status == 200
        until(client, lambda: held() == 0)
        streams = [client.stream(f"{service.url}/stream?chunks=200&gap=0.05") for _ in range(2)]
        assert [one.next()[:7] for one in streams] == [b"chunk 0"] * 2
        assert held() == 2
        with pytest.raises(RateLimited):
            client.get(service.url)
        streams[0].close()
        until(client, lambda: held() == 1)
        streams[1].close()
        until(client, lambda: held() == 0)
        ending = client.stream(f"{service.url}/stream?chunks=2")
        while ending.next():
            pass
        until(client, lambda: held() == 0)
        with pytest.raises(client.read_error):
            client.call("POST", f"{service.url}/drop")
        until(client, lambda: held() == 0)
        assert client.get(f"{service.url}/say?status=403&body={{}}&field=Content-Type:application/json").status == 403
        until(client, lambda: held() == 0)


def test_waiting_requests_with_a_hold_go_one_after_the_other(outgoing: Any, strict: StrictServer) -> None:
    service = strict.service("concurrency", 2)
    with Limiter() as limiter, outgoing(limiter, "concurrency 2", learn=False) as client:
        answers = client.gather([f"{service.url}/?wait=0.02"] * 12)
        assert [one.status for one in answers] == [200] * 12
    counts = service.counts()
    assert (counts["admitted"], counts["refused"], counts["most"]) == (12, 0, 2)


def test_streams_stay_streams(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, SLOW, settle=lambda response: Reader(3)) as client:
        began = time.monotonic()
        stream = client.stream(f"{service.url}/stream?chunks=40&gap=0.5")
        assert stream.next() == b"chunk 0\n"
        assert stream.next() == b"chunk 1\n"
        # The whole stream takes twenty seconds.
        assert time.monotonic() - began < 15
        stream.close()


class Reader:
    """Reads a body, and returns a cost."""

    def __init__(self, cost: Any) -> None:
        self.chunks: list[bytes] = []
        self.cost, self.ends = cost, 0

    def feed(self, chunk: bytes) -> None:
        assert self.ends == 0
        self.chunks.append(chunk)

    def end(self) -> Any:
        self.ends += 1
        return self.cost


@pytest.mark.parametrize(
    "path", ["/stream?chunks=3", "/say?body=chunk&repeat=2000&gzip=1&field=Content-Type:text/plain"]
)
def test_a_reader_sees_what_the_caller_reads_and_settles_at_the_end(
    outgoing: Any, service: StrictService, path: str
) -> None:
    readers: list[Reader] = []

    def settle(response: Any) -> SettleReader:
        assert (response.status_code, response.request.method) == (200, "GET")
        assert response.headers["Content-Type"] == response.headers["content-type"] == "text/plain"
        readers.append(Reader(4))
        return readers[-1]

    with Limiter() as limiter, outgoing(limiter, SLOW, settle=settle) as client:
        answer = client.get(service.url + path)
        [reader] = readers
        assert b"".join(reader.chunks) == answer.body != b""
        assert (reader.ends, used(limiter, SLOW, service.url)) == (1, [4])
        stream = client.stream(service.url + path)
        read = []
        while chunk := stream.next():
            read.append(chunk)
        stream.close()
        assert b"".join(readers[1].chunks) == b"".join(read) == answer.body
        assert (readers[1].ends, used(limiter, SLOW, service.url)) == (1, [8])


def test_a_stream_that_is_given_up_is_settled_with_what_is_known(outgoing: Any, service: StrictService) -> None:
    readers: list[Reader] = []
    costs: list[Any] = [5, None]

    def settle(response: Any) -> SettleReader:
        readers.append(Reader(costs.pop(0)))
        return readers[-1]

    with Limiter() as limiter, outgoing(limiter, SLOW, settle=settle) as client:
        for used_then in (5, 6):
            stream = client.stream(f"{service.url}/stream?chunks=100&gap=0.1")
            assert stream.next() == b"chunk 0\n"
            stream.close()
            until(client, lambda count=used_then: used(limiter, SLOW, service.url) == [count])
            assert readers[-1].ends == 1
            assert readers[-1].chunks[0] == b"chunk 0\n"


def test_a_cost_is_settled_at_the_end_of_the_body(outgoing: Any, service: StrictService) -> None:
    policy = "100 requests/hour; 1000 tokens/hour"
    options: dict[str, Any] = {
        "cost": {"tokens": 100},
        "settle": lambda response: {"tokens": int(response.headers["x-used"])},
        "key": "llm",
    }
    with Limiter() as limiter, outgoing(limiter, policy, **options) as client:
        client.get(f"{service.url}/say?field=x-used:30&body=hello")
        assert used(limiter, policy, "llm", {"tokens": 0}) == [1, 30]
        stream = client.stream(f"{service.url}/say?field=x-used:700&chunked=1&body=hello&repeat=1000")
        while stream.next():
            pass
        stream.close()
        assert used(limiter, policy, "llm", {"tokens": 0}) == [2, 730]


def test_what_settle_returns_is_checked(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, "concurrency 1; 10/hour", settle=lambda response: "much") as client:
        with pytest.raises(CostError, match="settle returned 'much'"):
            client.get(service.url)
        until(client, lambda: used(limiter, "concurrency 1; 10/hour", service.url)[0] == 0)


def said(service: StrictService, status: int, times: int = 1000, **more: Any) -> str:
    fields = "".join(f"&field={quote(one)}" for one in more.pop("fields", ()))
    rest = "".join(f"&{name}={quote(str(value))}" for name, value in more.items())
    return f"{service.url}/say?status={status}&times={times}{fields}{rest}"


BODY = {"error": {"message": "slow", "details": ["x" * 100]}}


# 700 repeats are more than Tidegate reads, and less than aiohttp buffers: aiohttp 3.14 may cut off a paused body.
@pytest.mark.parametrize("encoding", ["", "gzip", "chunked"])
@pytest.mark.parametrize("repeat", [1, 700])
def test_a_body_that_was_read_stays_readable(outgoing: Any, service: StrictService, encoding: str, repeat: int) -> None:
    body = json.dumps(BODY)
    coded = {encoding: 1} if encoding else {}
    options: dict[str, Any] = {"max_learned_wait": 0}
    with Limiter() as limiter:
        for more in ({}, {"settle": lambda response: Reader(1)}):
            with outgoing(limiter, "100/hour", **options, **more) as client:
                for status in (403, 429, 503):
                    url = said(
                        service, status, body=body, repeat=repeat, fields=["Content-Type:application/json"], **coded
                    )
                    answer = client.get(url)
                    assert (answer.status, answer.body) == (status, body.encode() * repeat)
                    stream = client.stream(url)
                    read = b""
                    while chunk := stream.next():
                        read += chunk
                    stream.close()
                    assert read == body.encode() * repeat
                    assert client.call("HEAD", url).status == status


@pytest.mark.parametrize("repeat", [1, 1000])
def test_a_body_that_breaks_off_is_an_error_where_the_caller_reads(
    outgoing: Any, service: StrictService, repeat: int
) -> None:
    url = said(service, 429, body=json.dumps(BODY), repeat=repeat, fields=["Content-Type:application/json"], cut=1)
    policy = "concurrency 1; 10/hour"
    with Limiter() as limiter, outgoing(limiter, policy, max_learned_wait=0) as client:
        stream = client.stream(url)
        assert stream.status == 429
        read = b""
        with pytest.raises(client.broken_error):
            while chunk := stream.next():
                read += chunk
        assert (json.dumps(BODY).encode() * repeat).startswith(read)
        stream.close()
        until(client, lambda: used(limiter, policy, service.url)[0] == 0)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"])
def test_what_is_idempotent_is_sent_again(outgoing: Any, service: StrictService, method: str) -> None:
    with Limiter() as limiter, outgoing(limiter, SLOW, retries=2, learn=False) as client:

        def sent(url: str, **options: Any) -> tuple[int, int]:
            before = len(service.requests())
            return client.call(method, url, **options).status, len(service.requests()) - before

        again = method not in ("POST", "PATCH")
        once = said(service, 429, 1, fields=["Retry-After:0"])
        assert sent(once) == ((200, 2) if again else (429, 1))
        assert sent(f"{once}&key=1", headers={"Idempotency-Key": "k"}) == (200, 2)
        # Each attempt is charged like a separate call.
        assert used(limiter, SLOW, service.url) == [len(service.requests())]


def test_retries_are_bounded(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, "token-bucket 100/hour", retries=2, learn=False, timeout=5) as client:

        def sent(url: str, **options: Any) -> tuple[int, int]:
            before = len(service.requests())
            return client.call("PUT", url, **options).status, len(service.requests()) - before

        assert sent(said(service, 429, 9, fields=["Retry-After:0"])) == (429, 3)
        assert sent(said(service, 503, 9, fields=["Retry-After:0"])) == (503, 3)
        # The first response names no wait, and a 500 is not a limit.
        assert sent(said(service, 503, 1)) == (503, 1)
        assert sent(said(service, 500, 1, fields=["Retry-After:0"])) == (500, 1)
        # The wait does not fit into the timeout.
        assert sent(said(service, 429, 1, fields=["Retry-After:6"])) == (429, 1)
        # The wait for the turn has used a part of the timeout.
        limiter.block(paced_policy(limiter, "token-bucket 100/hour"), f"out:{service.url}", 0.2)
        assert sent(said(service, 429, 1, fields=["Retry-After:5"])) == (429, 1)
        # A body that can be sent again, and one that cannot.
        once = said(service, 429, 1, fields=["Retry-After:0"])
        assert sent(f"{once}&body=1", content=b"bytes") == (200, 2)
        assert sent(f"{once}&stream=1", content=iter([b"a", b"b"])) == (429, 1)


def test_a_retry_waits_as_long_as_it_was_told(outgoing: Any, service: StrictService) -> None:
    with Limiter() as limiter, outgoing(limiter, SLOW, retries=1, learn=False) as client:
        assert client.get(said(service, 429, 1, fields=["Retry-After:1"])).status == 200
        first, second = [one["at"] for one in service.requests()]
        assert second - first >= 1
