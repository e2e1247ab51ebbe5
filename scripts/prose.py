"""Reads the comments and pages that a change touches, and lists the sentences that are hard to read.

    python scripts/prose.py [BASE]

BASE is the commit before the change. Without it that is main of origin, or the commit before the last.
The program prints advice. It fails only on an error that is always wrong: a word that stands twice in a row.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMENTS = {".rs": "//", ".ts": "//", ".mjs": "//", ".lua": "--", ".py": "#", ".sh": "#"}
# The parts of a page that are no sentences, such as code and links.
QUOTED = re.compile(r"`[^`]*`|\]\([^)]*\)|<[^>]*>")
ADVICE = {
    "begins with Of, What, Whether or Where": re.compile(r"^(Of|What|Whether|Where)\b(?!.*\?$)"),
    "joins sentences with a semicolon": re.compile(r"; \w"),
    "uses a clause as a noun": re.compile(r"\b(of|in|by|with|from) (what|which of) (it|they|a|the|an|each)\b"),
}
TWICE = re.compile(r"\b(the|a|an|is|of|to|and|in|it|for|with|by|on|are) \1\b", re.IGNORECASE)
MOST_ADVICE = 40


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False).stdout


def base() -> str:
    """The commit before the change. Empty if there is none, as in a clone of one commit."""
    for candidate in ("origin/main", "HEAD~1"):
        found = git("merge-base", "HEAD", candidate).strip()
        if found and found != git("rev-parse", "HEAD").strip():
            return found
    return ""


def added_lines(since: str) -> Iterator[tuple[str, int, str]]:
    """Each added line of prose, with its file and number."""
    file, number = "", 0
    for line in git("diff", "--unified=0", "--no-color", since, "--").splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif line.startswith("@@"):
            number = int(re.findall(r"\+(\d+)", line)[0])
        elif line.startswith("+"):
            mark = COMMENTS.get(Path(file).suffix)
            text = line[1:].strip()
            if file.endswith(".md") and not text.startswith(("|", "#", "-", "    ")):
                yield file, number, text
            elif mark and text.startswith(mark):
                yield file, number, text.lstrip(mark[0] + "!").strip()
            number += 1


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.:?]) ", QUOTED.sub("x", text))


def main() -> int:
    since = sys.argv[1] if len(sys.argv) > 1 else base()
    if not since:
        print("prose: there is no commit to compare with")
        return 0
    advice, wrong = [], []
    for file, number, text in added_lines(since):
        for sentence in sentences(text):
            where = f"{file}:{number}: {sentence[:110]}"
            advice += [f"{where}\n    {what}" for what, pattern in ADVICE.items() if pattern.search(sentence)]
            if TWICE.search(sentence):
                wrong.append(f"{where}\n    a word stands twice in a row")
    print("\n".join(advice[:MOST_ADVICE]))
    print(f"prose: {len(advice)} sentences could be plainer, and {len(wrong)} are wrong")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
