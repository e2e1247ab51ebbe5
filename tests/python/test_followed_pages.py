"""Every page that starts a server, or has the comment `followed`, is followed from top to bottom, as its reader does.
The packages of this checkout are installed, and everything else comes from the page. A page with the comment `built`
needs a framework that is not installed here. `make dist` follows it, and frameworks.test.mjs of Node builds it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from followed_page import FollowedPage
from paths import ROOT
from snippets import blocks_of, is_followed, pages

FOLLOWED = [path for path in pages() if is_followed(path) and "<!-- built -->" not in path.read_text(encoding="utf-8")]


def folder_for(path: Path) -> tempfile.TemporaryDirectory[str]:
    """Makes a clean folder. For a page about Node it is in the checkout, so that `tidegate` is this package."""
    is_node = any(block.language in ("js", "ts") for block in blocks_of(path))
    if is_node:
        (ROOT / ".cache").mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="page-", dir=ROOT / ".cache" if is_node else None)


@pytest.mark.parametrize("path", FOLLOWED, ids=lambda path: path.stem)
def test_a_page_is_followed(path: Path) -> None:
    with folder_for(path) as folder, FollowedPage(path, Path(folder)) as page:
        assert page.follow() >= 1, "answers are compared"
