"""Writes docs/reference/flags.md, the flags of every verb of the command, from the output of `--help`. The tests of
the command keep that output in cli/tests/golden.

    .cache/venv/bin/python docs/site/flags.py           writes the page
    .cache/venv/bin/python docs/site/flags.py --check   fails when the committed one is not this
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "flags.md"
GOLDEN = ROOT / "cli" / "tests" / "golden"

HEAD = """# The flags of the command

What `tidegate VERB --help` prints, verb by verb. [The command](command.md) says what the verbs are for, with their
output.
"""


def page() -> str:
    """Returns the page. The verbs are in the order of the command's own list."""
    help_of_all = (GOLDEN / "help.txt").read_text(encoding="utf-8")
    commands = help_of_all.partition("Commands:\n")[2].partition("\nOptions:")[0]
    parts = [HEAD]
    for verb in re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE):
        if verb != "help":
            text = (GOLDEN / f"help-{verb}.txt").read_text(encoding="utf-8").strip("\n")
            lines = "\n".join(line.rstrip() for line in text.splitlines())
            parts.append(f"\n## {verb}\n\n```text\n{lines}\n```\n")
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
