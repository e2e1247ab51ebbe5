"""Draws the pictures of the README: docs/images/demo.svg plays the output of `tidegate demo` in its rhythm, and
docs/images/peers.svg has three groups of the figures in docs/benchmarks/results.json.

    .cache/venv/bin/python docs/plots/readme.py           writes both
    .cache/venv/bin/python docs/plots/readme.py --check   fails when the committed ones are not these
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benches"))

from suite.charts import SUBTITLE, drawing, panel_of  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# The part and the case of each group, and its title.
GROUPS = [
    ("traffic", "Python, 16 policies", "Python on Redis, 16 policies"),
    ("traffic", "Node, 16 policies", "Node on Redis, 16 policies"),
    ("http", "FastAPI, two limits", "FastAPI on Redis, two limits"),
]
LINE, MARGIN, WIDTH = 17, 20, 760
# Seconds that the last line stays before the demo begins again.
REST = 5.0
# A terminal shows the waiting bar in one line, which changes.
CHANGES = "  waiting "

STYLE = """.page { fill: #0d1117; stroke: #30363d }
text { fill: #c9d1d9; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.head { fill: #f0f6fc; font-weight: 600 } .yes { fill: #7ee787 } .no { fill: #ffa198 } .wait { fill: #79c0ff }
.passing { opacity: 0 }
"""


def printed() -> list[tuple[float, str]]:
    """Runs the demo. Returns each line of its first part with the second at which it was printed."""
    command = [str(Path(sys.executable).parent / "tidegate"), "demo", "--color", "never"]
    lines, began = [], time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        for line in demo.stdout or ():
            lines.append((time.monotonic() - began, line.rstrip()))
    part = next(number for number, (_, line) in enumerate(lines) if line.startswith("2."))
    return lines[: part - 1]


def style_of(line: str) -> str:
    """The style of a line, from its text."""
    known = {"^[1T]": "head", "  allowed": "yes", "refused": "no", "^  waiting": "wait"}
    return next((style for pattern, style in known.items() if re.search(pattern, line)), "")


def played(lines: list[tuple[float, str]]) -> str:
    """A terminal in which the lines appear, again and again."""
    whole = lines[-1][0] + REST
    rules, texts, row = [], [], 0
    for number, (at, line) in enumerate(lines):
        if not line.startswith(CHANGES) or not lines[number - 1][1].startswith(CHANGES):
            row += 1
        if not line:
            continue
        begins = 100 * at / whole
        following = lines[number + 1] if number + 1 < len(lines) else (whole, "")
        ends = 100 * following[0] / whole if line.startswith(CHANGES) and following[1].startswith(CHANGES) else 100.0
        last = f"{ends:.2f}%{{opacity:0}}" if ends < 100 else ""
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{begins:.2f}%{{opacity:1}}{last}}}")
        rules.append(f".l{number}{{animation:l{number} {whole:.1f}s step-end infinite}}")
        kind = f"l{number} {style_of(line)}".strip()
        # The last state of the bar is the one to see where nothing moves.
        kind += " passing" if ends < 100 else ""
        texts.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * row}" class="{kind}">{escape(line)}</text>')
    height = 2 * MARGIN + LINE * row
    still = "@media (prefers-reduced-motion: reduce){text{animation:none!important}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" xml:space="preserve" aria-label="tidegate demo: five checks are admitted, three are refused, '
        'and the next one is admitted after the wait that the refusal named">'
    )
    style = "\n".join(["<style>", STYLE + "\n".join(rules), still, "</style>"])
    page = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="page"/>'
    return "\n".join([head, style, page, *texts, "</svg>"]) + "\n"


def chart() -> str:
    """The chart of three groups."""
    parts = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text(encoding="utf-8"))["parts"]
    panels = []
    for part, name, title in GROUPS:
        (case,) = [case for case in parts[part]["cases"] if case["name"] == name]
        panels.append(panel_of(case, title, floors=False))
    environment = parts["traffic"]["environment"]
    conditions = f"{environment['Processor']}, Redis {environment['Redis']}."
    return drawing("Tidegate beside its peers", SUBTITLE + conditions, [panel for panel in panels if panel])


def shapes(text: str) -> list[str]:
    """The lines of the picture of the demo, without their times."""
    lines = re.findall(r'<text[^>]*class="([^"]*)">([^<]*)</text>', text)
    return [re.sub(r"\d+\.\d\d s", "TIME", line) for kind, line in lines if " wait" not in kind]


def main() -> int:
    """Writes the pictures, or compares them with the committed ones."""
    pictures = {"demo.svg": played(printed()), "peers.svg": chart()}
    if "--check" not in sys.argv:
        for name, text in pictures.items():
            (IMAGES / name).write_text(text, encoding="utf-8")
        return 0
    committed = {name: (IMAGES / name).read_text(encoding="utf-8") for name in pictures}
    stale = [] if shapes(committed["demo.svg"]) == shapes(pictures["demo.svg"]) else ["demo.svg"]
    stale += [] if committed["peers.svg"] == pictures["peers.svg"] else ["peers.svg"]
    if stale:
        print(f"docs/images: {', '.join(stale)} must be drawn again: python docs/plots/readme.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
