"""`tidegate.outgoing` with the headers of every client. The dialects are vectors, in `tests/http/responses.json`."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tidegate import ConfigError
from tidegate.outgoing import Observation

FIELDS = {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "5", "Retry-After": "7"}


class Multi:
    """The headers of httpx, where `items` joins repeated fields."""

    def multi_items(self) -> list[tuple[str, str]]:
        return [*FIELDS.items(), ("x-ratelimit-remaining", "3")]

    def items(self) -> list[tuple[str, str]]:
        raise AssertionError("this joins")


@pytest.mark.parametrize(
    "headers",
    [
        FIELDS,
        list(FIELDS.items()),
        iter(FIELDS.items()),
        [list(pair) for pair in FIELDS.items()],
        {name.encode(): value.encode() for name, value in FIELDS.items()},
        Multi(),
    ],
)
def test_headers_of_every_client(headers: Any) -> None:
    [said] = Observation.from_headers(headers, status=429)
    assert (said.limit, said.remaining, said.reset_after, said.retry_after) == (10, 0, 5.0, 7.0)
    assert (said.name, said.window, said.unit, said.scope) == (None, None, None, "key")
    assert repr(said) == "Observation(limit=10, remaining=0, reset_after=5.0, retry_after=7.0, scope='key')"
    assert said == Observation.from_headers(FIELDS)[0] != Observation.from_headers({"Retry-After": "7"})[0]


def test_when_the_response_came() -> None:
    headers = {"X-RateLimit-Reset": "1700000060"}
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    for date in (1_700_000_000, 1_700_000_000.0, moment):
        assert Observation.from_headers(headers, date=date)[0].reset_after == 60.0
    [said] = Observation.from_headers({"X-RateLimit-Reset": str(int(time.time()) + 60)})
    assert said.reset_after is not None and said.reset_after <= 60.0


def test_a_body_and_the_longest_wait() -> None:
    for body in (b'{"retry_after": 9}', '{"retry_after": 9}'):
        assert Observation.from_headers({}, status=429, body=body)[0].retry_after == 9.0
    for longest in (2, 2.0, timedelta(seconds=2)):
        [said] = Observation.from_headers({"Retry-After": "9"}, max_learned_wait=longest)
        assert said.retry_after == 2.0


def test_what_cannot_be_read_is_an_error_that_says_so() -> None:
    for wrong in (None, 7, "Retry-After: 7", [7], ["ab"], [("a", "b", "c")], [("a", 7)], {"a": None}):
        with pytest.raises(TypeError, match="headers"):
            Observation.from_headers(wrong)  # type: ignore[arg-type]
    for date in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="date"):
            Observation.from_headers({}, date=date)
    for arguments in ({"date": "now"}, {"body": 7}, {"status": "429"}):
        with pytest.raises(TypeError, match=next(iter(arguments))):
            Observation.from_headers({}, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Observation.from_headers({}, max_learned_wait=-1)
