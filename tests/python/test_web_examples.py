"""The examples of the web layers work as they show it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paths import ROOT

# Each runs in a separate process, because Django is configured once in a process.
FLASK = """
from python_flask import app
from web import call_wsgi as call
assert [call(app, "POST", "/login").status for _ in range(6)] == [200] * 5 + [429]
body = {"wsgi.input": __import__("io").BytesIO(b"user=bob"), "CONTENT_LENGTH": "8"}
body["CONTENT_TYPE"] = "application/x-www-form-urlencoded"
assert call(app, "POST", "/login", REMOTE_ADDR="203.0.113.7", **body).status == 200
told = app.test_cli_runner().invoke(args=["users-behind", "203.0.113.7"]).output
assert told.split()[1:] == ["bob", "allowed"], told
assert call(app, path="/").items("RateLimit-Policy") == {"100/minute": {"q": 100, "w": 60}}
assert "RateLimit" not in call(app, path="/health")
seen = call(app, path="/export")
assert seen.status == 200 and len(seen.parts) == 1000
seen = call(app, path="/api/things", headers={"X-API-Key": "secret"})
assert seen.items("RateLimit-Policy")["api"] == {"q": 20, "w": 2}
"""
FASTAPI = """
from python_fastapi import app, tg
from web import call_asgi as call
assert [call(app, "POST", "/login").status for _ in range(6)] == [200] * 5 + [429]
assert call(app, path="/").items("RateLimit-Policy") == {"100/minute": {"q": 100, "w": 60}}
assert "RateLimit" not in call(app, path="/health")
seen = call(app, path="/complete")
assert seen.status == 200 and seen.items("RateLimit")["tokens"]["r"] == 950
assert call(app, path="/complete").items("RateLimit")["tokens"]["r"] == 947, "settled at three"
assert [call(app, path="/api/things").status for _ in range(11)] == [200] * 10 + [429]
"""
DJANGO = """
from python_django import application as app
from web import call_wsgi as call
assert [call(app, path="/login").status for _ in range(6)] == [200] * 5 + [429]
assert call(app, path="/").items("RateLimit-Policy") == {"100/minute": {"q": 100, "w": 60}}
assert "RateLimit" not in call(app, path="/health")
assert call(app, path="/search").items("RateLimit-Policy")["search"] == {"q": 20, "w": 2}
"""


@pytest.mark.parametrize("program", [FLASK, FASTAPI, DJANGO], ids=["flask", "fastapi", "django"])
def test_an_example(program: str) -> None:
    paths = [str(ROOT / "examples"), str(Path(__file__).parent)]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {json.dumps(paths)}\n{program}"], check=True, timeout=120
    )
