"""The fields that a strict server makes from its books: one function for each dialect of docs/adr/0038.

Each gets the verdicts of a request, True if it was admitted, and the time in seconds since 1970. It returns the
status of a refusal, header fields and, for a refusal, JSON.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Tuple

from .books import Verdict

Answer = Tuple[int, Dict[str, str], Any]
Dialect = Callable[[List[Verdict], bool, float], Answer]
REFUSED = {"error": "too many requests"}


def _wait(verdicts: list[Verdict]) -> float:
    return max(one.retry_after for one in verdicts)


def _retry_after(verdicts: list[Verdict], admitted: bool) -> dict[str, str]:
    return {} if admitted else {"Retry-After": str(max(1, math.ceil(_wait(verdicts))))}


def _tightest(verdicts: list[Verdict]) -> Verdict:
    return min(verdicts, key=lambda one: one.remaining / one.limit)


def ietf(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    policies = ", ".join(f'"{one.unit}";q={one.limit};w={math.ceil(one.window)}' for one in verdicts)
    left = ", ".join(f'"{one.unit}";r={one.remaining};t={math.ceil(one.reset_after)}' for one in verdicts)
    return 429, {"RateLimit-Policy": policies, "RateLimit": left, **_retry_after(verdicts, admitted)}, REFUSED


def _x_rate_limit(verdict: Verdict, reset: float) -> dict[str, str]:
    return {
        "X-RateLimit-Limit": str(verdict.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset": str(math.ceil(reset)),
    }


def unix(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    one = _tightest(verdicts)
    return 429, _x_rate_limit(one, now + one.reset_after), REFUSED


def seconds(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    one = _tightest(verdicts)
    return 429, _x_rate_limit(one, one.reset_after), REFUSED


def retry_after(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    return 429, _retry_after(verdicts, admitted), REFUSED


def github(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    one = _tightest(verdicts)
    fields = _x_rate_limit(one, now + one.reset_after)
    fields.update({"X-RateLimit-Used": str(one.limit - one.remaining), "X-RateLimit-Resource": "core"})
    return 403, fields, {"message": "API rate limit exceeded for 127.0.0.1."}


def openai(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    fields = _retry_after(verdicts, admitted)
    for one in verdicts:
        fields[f"x-ratelimit-limit-{one.unit}"] = str(one.limit)
        fields[f"x-ratelimit-remaining-{one.unit}"] = str(one.remaining)
        fields[f"x-ratelimit-reset-{one.unit}"] = _length(one.reset_after)
    return 429, fields, {"error": {"type": "rate_limit_exceeded", "code": "rate_limit_exceeded", "message": "Slow."}}


def _length(length: float) -> str:
    """Writes a length as Go does: 6m0s, 1.5s, 20ms."""
    if length < 1:
        return f"{math.ceil(length * 1000)}ms"
    minutes, rest = divmod(length, 60)
    return (f"{int(minutes)}m" if minutes else "") + f"{math.ceil(rest * 1000) / 1000:g}s"


def anthropic(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    fields = _retry_after(verdicts, admitted)
    for one in verdicts:
        reset = datetime.fromtimestamp(math.ceil(now + one.reset_after), timezone.utc)
        fields[f"anthropic-ratelimit-{one.unit}-limit"] = str(one.limit)
        fields[f"anthropic-ratelimit-{one.unit}-remaining"] = str(one.remaining)
        fields[f"anthropic-ratelimit-{one.unit}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return 429, fields, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}}


def discord(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    one = _tightest(verdicts)
    fields = _x_rate_limit(one, now + one.reset_after)
    fields.update(
        {
            "X-RateLimit-Reset": f"{now + one.reset_after:.3f}",
            "X-RateLimit-Reset-After": f"{math.ceil(one.reset_after * 1000) / 1000:.3f}",
            "X-RateLimit-Bucket": "abcd1234",
        }
    )
    if not admitted:
        fields["X-RateLimit-Scope"] = "user"
    wait = math.ceil(_wait(verdicts) * 1000) / 1000
    fields.update(_retry_after(verdicts, admitted))
    return 429, fields, {"message": "You are being rate limited.", "retry_after": wait, "global": False}


def shopify(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    one = _tightest(verdicts)
    fields = {"X-Shopify-Shop-Api-Call-Limit": f"{one.limit - one.remaining}/{one.limit}"}
    if not admitted:
        fields["Retry-After"] = f"{max(1, math.ceil(_wait(verdicts))):.1f}"
    return 429, fields, {"errors": "Exceeded the rate limit."}


def retry_info(verdicts: list[Verdict], admitted: bool, now: float) -> Answer:
    delay = math.ceil(_wait(verdicts) * 1000) / 1000
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{delay:.3f}s"}
    return 429, {}, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [detail]}}


DIALECTS: dict[str, Dialect] = {
    "ietf": ietf,
    "unix": unix,
    "seconds": seconds,
    "retry-after": retry_after,
    "github": github,
    "openai": openai,
    "anthropic": anthropic,
    "discord": discord,
    "shopify": shopify,
    "retry-info": retry_info,
}
