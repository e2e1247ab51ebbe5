"""The code blocks of the README, of the packages' READMEs and of every page in docs.

Each block names its language, and each language has one rule:

    python              runs, pasted alone into a module. Blocks of a page about Django run in one namespace, as a
                        block with the title settings.py configures the process. A block with the title of a PROGRAM is
                        a separate file: test_programs.py
    js, ts              runs as a separate program: tests/node/readme.test.mjs
    rust                compiles and runs as a test of the documentation, with its own `main`: tests/rust/build.rs
    yaml, toml, json    is read: a policy file by a limiter, anything else by a parser
    sh                  names only commands that exist

A page with a block `sh title="server"`, or with the comment `followed`, is followed from top to bottom: its blocks with
titles are files, and its commands run. followed_page.py has the rules.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

# Python blocks that are whole programs, by their titles.
PROGRAMS = ("scraper.py", "assistant.py", "orders.py")

RUN = {"python", "js", "ts", "rust"}
READ = {"yaml", "toml", "json"}
COMMANDS = {"sh"}
PROSE = {"text", "http"}

FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_alone(self) -> bool:
        """True if it runs by itself, and is no file of a program or of a page that is followed."""
        return not (self.title in PROGRAMS or (self.title and is_followed(ROOT / self.page)))


def pages() -> list[Path]:
    """The README, those of the packages, and all pages of the site."""
    readmes = [ROOT / "README.md", *sorted(ROOT.glob("bindings-*/README.md")), ROOT / "core" / "README.md"]
    return [*readmes, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_in(text: str, page: str) -> Iterator[Block]:
    """Yields the blocks of a page, also indented ones."""
    for found in FENCE.finditer(text):
        language, _, more = found["info"].partition(" ")
        title = re.search(r'title="([^"]*)"', more)
        yield Block(
            page,
            text.count("\n", 0, found.start("info")) + 1,
            language,
            title[1] if title else "",
            textwrap.dedent(found["code"]),
        )


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a file."""
    return list(blocks_in(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()))


@functools.cache
def is_followed(path: Path) -> bool:
    """True if a page is followed from top to bottom: it starts a server, or has the comment `followed`."""
    return "<!-- followed -->" in path.read_text(encoding="utf-8") or any(
        block.title == "server" for block in blocks_of(path)
    )


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for path in pages() for block in blocks_of(path)]
