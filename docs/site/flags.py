"""Writes docs/reference/flags.md, the flags of every verb of the command, from the output of `--help`. The tests of
the command keep that output in cli/tests/golden. A flag that several verbs share is described once, in a table.

    .cache/venv/bin/python docs/site/flags.py           writes the page
    .cache/venv/bin/python docs/site/flags.py --check   fails when the committed one is not this
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "flags.md"
GOLDEN = ROOT / "cli" / "tests" / "golden"
# A flag that this many verbs describe in the same words is in the table.
SHARED = 3

HEAD = """# The flags of the command

The output of `tidegate VERB --help`, without repetition. [The command](command.md) explains the verbs.

## Flags of several verbs

| flag | meaning | verbs |
|---|---|---|
"""
FLAG = re.compile(r"^ {2,6}(?:-\w, )?--[a-z-]+")
DEEP = " " * 8


class Flag(NamedTuple):
    """The lines of a flag in a help text, and its description in one line."""

    begin: int
    end: int
    name: str
    meaning: str


def flags_of(lines: list[str]) -> list[Flag]:
    """The flags of a help text."""
    found = []
    for begin, line in enumerate(lines):
        if not FLAG.match(line):
            continue
        end = begin + 1
        # A description has deeper lines, and may have empty ones between them.
        while "".join(lines[end : end + 2] if lines[end : end + 1] == [""] else lines[end : end + 1]).startswith(DEEP):
            end += 1
        name, _, first = line.strip().partition("  ")
        meaning = " ".join(" ".join([first, *lines[begin + 1 : end]]).split())
        found.append(Flag(begin, end, name, meaning.replace("Print help (see a summary with '-h')", "Print help")))
    return found


def page() -> str:
    """Returns the page. The verbs are in the order of the command's own list."""
    help_of_all = (GOLDEN / "help.txt").read_text(encoding="utf-8")
    commands = help_of_all.partition("Commands:\n")[2].partition("\nOptions:")[0]
    verbs = [verb for verb in re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE) if verb != "help"]
    texts = {verb: (GOLDEN / f"help-{verb}.txt").read_text(encoding="utf-8").strip("\n").split("\n") for verb in verbs}
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for verb, lines in texts.items():
        for flag in flags_of(lines):
            users[flag.name, flag.meaning].append(verb)
    shared = {flag: names for flag, names in users.items() if len(names) >= SHARED}
    rows = []
    for (name, meaning), names in shared.items():
        left_out = [verb for verb in verbs if verb not in names]
        where = "all" if not left_out else ", ".join(names)
        if left_out and len(left_out) < len(names):
            where = f"all but {', '.join(left_out)}"
        # Two brackets beside each other would be a link.
        text = meaning.replace("[", r"\[")
        rows.append(f"| `{name}` | {text} | {where} |\n")
    parts = [HEAD, *rows]
    for verb, lines in texts.items():
        once = [flag for flag in flags_of(lines) if (flag.name, flag.meaning) in shared]
        gone = {number for flag in once for number in range(flag.begin, flag.end)}
        text = "\n".join(line.rstrip() for number, line in enumerate(lines) if number not in gone)
        # The heading of flags that are all in the table, and the empty lines around it.
        text = re.sub(r"^[A-Z]\w+:\n(?=\n|\Z)", "", text, flags=re.MULTILINE)
        text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
        parts.append(f"\n## {verb}\n\n```text\n{text}\n```\n")
    return "".join(parts)


def main() -> int:
    """Writes the page, or compares it with the committed one."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print(f"{PAGE.relative_to(ROOT)} is not what --help prints: python docs/site/flags.py writes it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
