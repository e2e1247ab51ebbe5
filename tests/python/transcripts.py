"""Writes the steps of each Python adapter for the requests of `tests/transcripts` into the transcripts there.

    python tests/python/transcripts.py

Look at the difference in git before you commit it, because it is a change of behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from paths import ROOT
from tidegate import Limiter, ManualClock, Policy, TidegateError
from web import SeenResponse
from web_adapter import Adapter
from web_adapters import ADAPTERS

FOLDER = ROOT / "tests" / "transcripts"
TRANSCRIPTS = FOLDER / "transcripts.json"
ADDRESS = "203.0.113.9"
FIELDS = ("RateLimit-Policy", "RateLimit", "Retry-After")


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))["cases"]
    return found


class Recording:
    """The events of one case, a line for each of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.lines: list[str] = []
        policies = {name: Policy(**said) if isinstance(said, dict) else said for name, said in case["policies"].items()}
        self.limiter = Limiter(policies=policies, clock=ManualClock(1_704_067_200))
        limit = case["limit"]
        # Every key function returns this key. Without one it is the client's address.
        self.key = limit["key"]["returns"] if "key" in limit else ADDRESS
        self.policies = sorted(policies)
        self.counts_tokens = {name for name, said in case["policies"].items() if "tokens" in str(said)}
        # The answer that the view gives to the current request.
        self.wanted: dict[str, Any] = {}

    def function(self, name: str, answer: Any) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            status = getattr(given[-1], "status_code", None) if name in ("refund_when", "settle") else None
            self.lines.append(name if status is None else f"{name}, told of {status}")
            return answer

        return called

    def left(self) -> str:
        """Returns the remaining units of each policy."""
        left = (f"{name} {self._left(name)}" for name in self.policies)
        return ", ".join(left)

    def _left(self, policy: str) -> str:
        cost: Any = {"tokens": 1} if policy in self.counts_tokens else 1
        return " and ".join(str(limit.remaining) for limit in self.limiter.peek(policy, self.key, cost).limits)

    def view(self) -> tuple[int, Any]:
        def part(number: int) -> Callable[[], bytes]:
            def made() -> bytes:
                self.lines.append(f"part {number}: {self.left()}")
                return b"part"

            return made

        self.lines.append(f"view: {self.left()}")
        parts = [part(number) for number in range(1, self.wanted.get("parts", 0) + 1)]
        return self.wanted.get("status", 200), parts or b"ok"


def options_of(recording: Recording, limit: dict[str, Any], adapter: Adapter) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, said in limit.items():
        is_function = isinstance(said, dict) and "returns" in said
        answer = adapter.plain_denial() if name == "on_denied" else said["returns"] if is_function else said
        options[name] = recording.function(name, answer) if is_function else said
    return options


def transcript(adapter: Adapter, case: dict[str, Any]) -> list[str]:
    """Returns the events of a case's requests, in order."""
    recording = Recording(case)
    holds = [recording.limiter.hold(policy, recording.key, cost) for policy, cost in case.get("held", {}).items()]
    options = options_of(recording, case["limit"], adapter)
    try:
        made = adapter.make(options.pop("policy"), recording.view, limiter=recording.limiter, **options)
    except TidegateError as error:
        return [f"{error.code} where the limit is written"]
    for request in case["requests"]:
        recording.wanted = request.get("view", {})
        try:
            recording.lines.append(answer(made.get()))
        except TidegateError as error:
            # A dependency of FastAPI knows its routes only with the first request.
            return [f"{error.code} at the first request"]
        recording.lines.append(f"after: {recording.left()}")
    for hold in holds:
        hold.release()
    counted = recording.limiter.stats()["policies"]
    counts = (f"{name} {each['allowed']} allowed and {each['denied']} denied" for name, each in counted.items())
    recording.lines.append("counted: " + ", ".join(counts))
    return recording.lines


def answer(seen: SeenResponse) -> str:
    fields = "".join(f" {name}: {seen[name]}" for name in FIELDS if name in seen)
    body = " problem" if seen.status == 429 and b"violated-policies" in seen.body else ""
    return f"{seen.status}{fields}{body}"


def merged(known: dict[str, list[dict[str, Any]]], name: str, found: dict[str, list[str]]) -> dict[str, Any]:
    """Adds the transcripts of one adapter. Adapters with the same lines stand together."""
    for case, lines in found.items():
        groups = known.setdefault(case, [])
        for group in groups:
            group["adapters"] = [other for other in group["adapters"] if other != name]
        same = next((group for group in groups if group["lines"] == lines), None)
        if same is None:
            groups.append({"adapters": [name], "lines": lines})
        else:
            same["adapters"] = sorted({*same["adapters"], name})
        known[case] = [group for group in groups if group["adapters"]]
    return known


def main() -> None:
    known = json.loads(TRANSCRIPTS.read_text(encoding="utf-8")) if TRANSCRIPTS.exists() else {}
    for adapter in ADAPTERS:
        known = merged(known, adapter.name, {case["name"]: transcript(adapter, case) for case in cases()})
    TRANSCRIPTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
