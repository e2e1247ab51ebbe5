"""Checks the links of the built site: every relative link leads to a file, every anchor to an element.

mkdocs checks its own pages. This script follows links as a browser does, also those to the crate's documentation.

    python docs/site/check.py FOLDER
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects the links and the anchors of a tag."""
        for name, value in attrs:
            if value is not None and name in ("id", "name"):
                self.anchors.add(value)
            if value is not None and name in ("href", "src"):
                self.links.append(value)


def target_of(page: Path, link: str, folder: Path) -> Path:
    """The file that a link of a page leads to."""
    path = unquote(urlsplit(link).path)
    target = page if not path else (folder / path.lstrip("/") if path.startswith("/") else page.parent / path)
    return target / "index.html" if target.is_dir() or path.endswith("/") else target


def main() -> int:
    """Prints each broken link. Returns 1 if there is one, or if no link was found."""
    folder = Path(sys.argv[1]).resolve()
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken, links = [], 0
    for path, page in pages.items():
        # rustdoc checks its own pages. The links of mkdocs' error page begin at the root of the host.
        if "rust-api" in path.parts or path.name == "404.html":
            continue
        for link in page.links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            links += 1
            target, anchor = target_of(path, link, folder).resolve(), urlsplit(link).fragment
            if not target.exists():
                broken.append(f"{path.relative_to(folder)}: {link}: no such file")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                broken.append(f"{path.relative_to(folder)}: {link}: no such anchor")
    print(*sorted(set(broken)), sep="\n")
    print(f"{links} links of {len(pages)} pages, {len(broken)} broken")
    return 1 if broken or not links else 0


if __name__ == "__main__":
    sys.exit(main())
