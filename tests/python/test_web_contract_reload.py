"""Every web layer after the policy file of its limiter was read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate import Limiter, TidegateError
from web_adapter import Adapter

ADDRESS = "203.0.113.9"


def written(path: Path, **policies: str) -> Path:
    path.write_text("policies:\n" + "".join(f"  {name}: {policy}\n" for name, policy in policies.items()))
    return path


@pytest.mark.parametrize("by_request", [False, True])
def test_a_reload_from_a_rate_to_concurrency_and_back(adapter: Adapter, by_request: bool, tmp_path: Path) -> None:
    file = written(tmp_path / "tidegate.yaml", p="3/minute")
    limiter = Limiter.from_file(file)
    during: list[int] = []

    def view() -> Any:
        during.append(limiter.peek("p", ADDRESS).remaining)
        return 200, b"ok"

    policy: Any = (lambda request: "p") if by_request else "p"
    made = adapter.make(policy, view=view, limiter=limiter)
    assert made.get().status == 200 and during == [2]
    written(file, p="concurrency 1")
    limiter.reload()
    for _ in range(3):
        assert made.get().status == 200
        assert limiter.peek("p", ADDRESS).remaining == 1, "units are given back"
    assert during == [2, 0, 0, 0]
    written(file, p="2/minute")
    limiter.reload()
    assert [made.get().status for _ in range(3)] == [200, 429, 429], "what the rate has counted has stayed beside"


@pytest.mark.parametrize("by_request", [False, True])
def test_a_reload_refuses_to_drop_a_policy_that_is_in_use(adapter: Adapter, by_request: bool, tmp_path: Path) -> None:
    file = written(tmp_path / "tidegate.yaml", p="3/minute", q="3/minute")
    limiter = Limiter.from_file(file)
    policy: Any = (lambda request: "p") if by_request else "p"
    made = adapter.make(policy, limiter=limiter)
    assert made.get().status == 200
    written(file, q="3/minute")
    with pytest.raises(TidegateError, match="p"):
        limiter.reload()
    assert [made.get().status for _ in range(3)] == [200, 200, 429]
