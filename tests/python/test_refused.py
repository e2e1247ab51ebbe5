"""Why was this request refused? The command finds the limit and its usage from the response, the caller's header, and
the policy file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from tidegate import Limiter
from tidegate.flask import Tidegate, header

POLICIES = """
store: file://{folder}/limits?max_bytes=1MB
prefix: shop
policies:
  tenant: 2/minute
"""
SECRET = "k-123"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tidegate.yaml").write_text(POLICIES.format(folder=tmp_path), encoding="utf-8")
    return tmp_path


def refusal(folder: Path, policy: str, **options: Any) -> str:
    """Returns the policy that refused the third request, as the response names it."""
    app = Flask(__name__)
    with Limiter.from_file(folder / "tidegate.yaml") as limiter:
        tg = Tidegate(app, limiter=limiter)

        @app.post("/search")
        @tg.limit(policy, key=header("X-API-Key"), **options)
        def search() -> str:
            return "found"

        client = app.test_client()
        statuses = [client.post("/search", headers={"X-API-Key": SECRET}) for _ in range(3)]
    assert [response.status_code for response in statuses] == [200, 200, 429]
    problem: dict[str, Any] = json.loads(statuses[-1].data)
    [violated] = problem["violated-policies"]
    return str(violated)


def tidegate(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "tidegate", *arguments, "--policies", "tidegate.yaml", "--json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert SECRET not in ran.stdout
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("policy", "options", "place"),
    [
        ("tenant", {}, []),
        ("tenant", {"per_method": True}, ["--method", "POST"]),
        ("2/minute", {}, ["--place", "search"]),
        ("2/minute", {"per_method": True}, ["--place", "search", "--method", "POST"]),
    ],
)
def test_the_command_shows_what_refused(folder: Path, policy: str, options: Any, place: list[str]) -> None:
    violated = refusal(folder, policy, **options)
    key = [violated, "--header", "X-API-Key", SECRET, *place]
    found = tidegate(folder, "inspect", *key)["decision"]
    assert (found["allowed"], found["remaining"], found["limits"][0]["exceeded"]) == (False, 0, True)
    assert tidegate(folder, "clear", *key)["key"] == found["key"]
    assert tidegate(folder, "peek", *key)["remaining"] == 2


def test_every_policy_of_the_file_for_a_header(folder: Path) -> None:
    refusal(folder, "tenant")
    [found] = tidegate(folder, "inspect", "--header", "X-API-Key", "--key", SECRET)["policies"]
    assert (found["policy"], found["remaining"]) == ("tenant", 0)
