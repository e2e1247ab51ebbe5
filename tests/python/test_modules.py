"""The modules of the package. The architecture test of Rust finds circles and long files in every language."""

from __future__ import annotations

import re

from paths import ROOT

WEB = ROOT / "bindings-python" / "python" / "tidegate" / "web"


def test_what_the_web_layers_share_knows_no_framework() -> None:
    frameworks = {
        "flask",
        "django",
        "fastapi",
        "starlette",
        "asgi",
        "wsgi",
        "limits",
        "mcp",
        "aiohttp",
        "quart",
        "sanic",
    }
    files = list(WEB.glob("*.py"))
    assert len(files) > 5
    for path in files:
        imported = set(re.findall(r"^(?:from|import) \.*(\w+)", path.read_text(), re.MULTILINE))
        assert not imported & frameworks, path
