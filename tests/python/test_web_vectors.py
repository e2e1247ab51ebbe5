"""`tests/http`: the rules of HTTP as data, through the Python module."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paths import ROOT
from tidegate import ConfigError, Decision, Limiter, ManualClock, TidegateError
from tidegate._tidegate import (
    ClientIp,
    Headers,
    anonymous,
    hashed,
    named,
    placed_key,
    problem,
    read_response,
    status,
)
from tidegate.outgoing import Observation

START = 1_704_067_200_000_000


def cases() -> list[Any]:
    found = []
    for path in sorted((ROOT / "tests" / "http").glob("*.json")):
        if path.stem in ("llm", "layered-keys"):
            # test_llm.py runs the calls of models, and test_web_keys.py the keys of layers.
            continue
        for case in json.loads(path.read_text())["cases"]:
            found.append(pytest.param(case, id=f"{path.stem}: {case['name']}"))
    assert found
    return found


@pytest.mark.parametrize("case", cases())
def test_a_vector(case: dict[str, Any]) -> None:
    if "steps" in case:
        answers(case)
    elif "forwarded" in case:
        lines = [line.encode() for line in case["forwarded"]]
        ip = ClientIp(case.get("trusted", []), case.get("ipv6_prefix", 64))
        if "error" not in case:
            assert ip.key(case["peer"], lines, case.get("unix", False)) == case["key"]
            return
        with pytest.raises(TidegateError, match=case["says"]) as refused:
            ip.key(case["peer"], lines, case.get("unix", False))
        assert refused.value.code == case["error"]
    elif "response" in case:
        response(case)
    elif "secret" in case:
        assert hashed(case["secret"]) == case["key"]
    elif "client" in case:
        assert anonymous(case["client"]) == case["key"]
    elif "user" in case:
        assert named(case["user"]) == case["key"]
    elif "of" in case:
        assert placed_key(case["place"], case["of"], case.get("method")) == case["key"]
    else:
        with pytest.raises(TidegateError) as raised:
            if "headers" in case:
                Headers(case["headers"])
            else:
                ClientIp(case.get("trusted", []), case.get("ipv6_prefix", 64))
        assert raised.value.code == case["error"]
        assert case["says"] in str(raised.value)


def response(case: dict[str, Any]) -> None:
    given = case["response"]
    pairs = [(name, value) for name, value in given["headers"]]
    options = {"status": given.get("status"), "body": given.get("body"), "max_learned_wait": case.get("longest")}
    now = case.get("now", START / 1e6)
    read, ignored, _, _ = read_response(pairs, now, **options)
    said = [{name: value for name, value in one.as_dict().items() if value is not None} for one in read]
    assert said == [{"scope": "key", **one} for one in case["observations"]]
    assert ignored == case.get("ignored", 0)
    assert Observation.from_headers(pairs, now, **options) == read


def test_hops_that_are_no_whole_number_are_refused() -> None:
    for hops in (1.0, float("nan"), 10**30, -(10**5000), b"1", None, object()):
        if hops is None:
            assert not ClientIp(hops).reads_forwarded
            continue
        with pytest.raises(ConfigError, match="trusted") as refused:
            ClientIp(hops)  # type: ignore[arg-type]
        assert len(str(refused.value)) < 300
    assert ClientIp(1).reads_forwarded and not ClientIp(0).reads_forwarded


def answers(case: dict[str, Any]) -> None:
    start = case.get("start", START)
    clock = ManualClock(start / 1e6)
    limiter = Limiter(policies=case.get("policies") or {"p": case["policy"]}, clock=clock)
    for step in case["steps"]:
        if "at" in step:
            clock.set((start + step["at"]) / 1e6)
        for _ in range(step.get("times", 1) - 1):
            do(limiter, step)
            clock.advance(step.get("every", 0) / 1e6)
        decision = do(limiter, step)
        expected = step.get("expect", {})
        if decision is None:
            continue
        if "status" in expected:
            assert status(decision) == expected["status"]
        for which, wanted in expected.get("headers", {}).items():
            text, raw = Headers(which).text(decision), Headers(which).raw(decision)
            assert [list(pair) for pair in text] == wanted
            assert raw == [(name.lower().encode(), value.encode()) for name, value in text]
        if "problem" in expected:
            assert json.loads(problem(decision)) == expected["problem"]


def do(limiter: Limiter, step: dict[str, Any]) -> Decision | None:
    policy, key, cost = step.get("policy", "p"), step.get("key", ""), step.get("cost", 1)
    if step["do"] == "check":
        return limiter.check(policy, key, cost)
    if step["do"] == "peek":
        return limiter.peek(policy, key, cost)
    if step["do"] == "charge":
        return limiter.charge(policy, key, cost)
    if step["do"] == "block":
        limiter.block(policy, key, step["for"] / 1e6)
        return None
    assert step["do"] == "check_all"
    return limiter.check_all([(one["policy"], one["key"], one.get("cost", 1)) for one in step["entries"]])
