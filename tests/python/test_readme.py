"""The Python code in the README and in the pages runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT
from web import call_asgi, call_wsgi


def blocks_of(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def app_of_page(name: str) -> Any:
    """Runs a page from top to bottom. Returns the application that it makes."""
    shared = {"__name__": "page"}
    for block in blocks_of(ROOT / "docs" / name):
        exec(compile(block, name, "exec"), shared)
    return shared["app"]


BLOCKS = blocks_of(ROOT / "README.md")


def test_the_readme_shows_python() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_page_about_flask_runs_from_top_to_bottom() -> None:
    app = app_of_page("flask.md")
    assert call_wsgi(app, "POST", "/login").body == b'{"left":4}\n'
    answers = [call_wsgi(app, "POST", "/login") for _ in range(21)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert b"wait" in refused.body and refused["Retry-After"]
    for plan, limit in (("free", "100"), ("paid", "5000")):
        seen = call_wsgi(app, path="/report", headers={"X-Plan": plan, "X-User": "alice"})
        assert (seen.status, seen.items("RateLimit-Policy")[plan]["q"]) == (200, int(limit))


def test_the_page_about_fastapi_runs_from_top_to_bottom() -> None:
    app = app_of_page("fastapi.md")
    assert call_asgi(app, "POST", "/login").body == b'{"left":4}'
    assert call_asgi(app, path="/search").body == b'{"left":9}'
    answers = [call_asgi(app, "POST", "/login", headers={"Origin": "https://shop.example"}) for _ in range(21)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert b"wait" in refused.body
    assert refused["Access-Control-Allow-Origin"] == "https://shop.example"
    assert call_asgi(app, path="/me", headers={"X-User": "alice"}).status == 200
