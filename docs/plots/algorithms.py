"""Draws the admissions of each algorithm for the same traffic: docs/images/*.svg. A real limiter with a ManualClock
gives the answers.

    .cache/venv/bin/python docs/plots/algorithms.py           writes the pictures
    .cache/venv/bin/python docs/plots/algorithms.py --check   fails when the committed ones are not these
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidegate import Limiter, ManualClock

IMAGES = Path(__file__).resolve().parent.parent / "images"
# The first second of a UTC minute.
START = 1_700_000_040.0
MINUTE = 60.0

WIDTH, LEFT, RIGHT, TOP, ROW = 860, 250, 96, 74, 34

STYLE = """<style>
.page { fill: #ffffff; stroke: #d0d7de }
text { fill: #1f2328; font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
.title { font-size: 15px; font-weight: 600 } .name { font-family: ui-monospace, Menlo, Consolas, monospace }
.quiet { fill: #59636e } .grid { stroke: #d8dee4 }
.call { stroke: #8c959f } .admitted { stroke: #0969da } .denied { stroke: #d0d7de } .over { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; stroke: #30363d } text { fill: #f0f6fc } .quiet { fill: #9198a1 } .grid { stroke: #2a313a }
.call { stroke: #7d8590 } .admitted { stroke: #4493f8 } .denied { stroke: #30363d } .over { fill: #f0883e }
}
</style>"""


class Answer(NamedTuple):
    """The outcome of a call: when it was made, and when it goes. `goes_at` is None for a refused call."""

    at: float
    goes_at: float | None


@dataclass(frozen=True)
class Figure:
    """Calls at certain seconds, and the policies that answer them."""

    file: str
    title: str
    subtitle: str
    calls: Sequence[float]
    policies: Sequence[str]
    # A minute should admit at most this many calls.
    count: int
    seconds: float


def answers(policy: str, calls: Sequence[float]) -> list[Answer]:
    """Asks a limiter about each call, at the time of the call."""
    clock = ManualClock(now=START)
    limiter = Limiter(clock=clock)
    said = []
    now = 0.0
    for at in calls:
        clock.advance(at - now)
        now = at
        decision = limiter.check(policy, "alice")
        said.append(Answer(at, at + decision.delay if decision else None))
    limiter.close()
    return said


def most_in_any_minute(times: Sequence[float]) -> int:
    """Returns the most calls that go within any minute. A minute ends just before its last instant."""
    return max((sum(begin <= at < begin + MINUTE - 1e-6 for at in times) for begin in times), default=0)


def ticks(times: Sequence[float], y: float, kind: str, scale: float) -> str:
    """Draws a line for each moment."""
    path = "".join(f"M{LEFT + at * scale:.1f} {y:g}v16" for at in times)
    return f'<path d="{path}" class="{kind}" stroke-width="1.6"/>' if path else ""


def drawn(figure: Figure) -> str:
    """Returns the SVG of a figure."""
    scale = (WIDTH - LEFT - RIGHT) / figure.seconds
    height = TOP + ROW * (len(figure.policies) + 1) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{figure.title}">',
        STYLE,
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="page"/>',
        f'<text x="16" y="26" class="title">{figure.title}</text>',
        f'<text x="16" y="46" class="quiet">{figure.subtitle}</text>',
        f'<text x="{WIDTH - 14}" y="{TOP - 6}" class="quiet" text-anchor="end">most in a minute</text>',
    ]
    bottom = height - 30
    for second in range(0, int(figure.seconds) + 1, 30):
        x = LEFT + second * scale
        parts.append(f'<path d="M{x:.1f} {TOP}V{bottom}" class="grid"/>')
        label = f"{second // 60}:{second % 60:02}"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" class="quiet" text-anchor="middle">{label}</text>')
    y = TOP + 8
    parts.append(f'<text x="16" y="{y + 13}" class="quiet">the calls</text>')
    parts.append(ticks(figure.calls, y, "call", scale))
    for policy in figure.policies:
        y += ROW
        said = answers(policy, figure.calls)
        went = [answer.goes_at for answer in said if answer.goes_at is not None]
        most = most_in_any_minute(went)
        parts.append(f'<text x="16" y="{y + 13}" class="name">{policy}</text>')
        parts.append(ticks([answer.at for answer in said if answer.goes_at is None], y, "denied", scale))
        parts.append(ticks([at for at in went if at <= figure.seconds], y, "admitted", scale))
        kind = ' class="over"' if most > figure.count else ""
        parts.append(f'<text x="{WIDTH - 14}" y="{y + 13}" text-anchor="end"{kind}>{most}</text>')
    return "\n".join([*parts, "</svg>", ""])


WINDOWS = ["sliding-window", "sliding-log", "sliding-counter", "fixed-window", "calendar-window"]
BUCKETS = ["token-bucket", "gcra", "leaky-bucket"]

FIGURES = [
    Figure(
        "steady.svg",
        "A caller that never stops: a call every second, of which 20 a minute are allowed",
        "Blue went, grey was denied. A leaky-bucket is shown when its calls go, after their delay.",
        [float(second) for second in range(180)],
        [*(f"{name} 20/minute" for name in WINDOWS), *(f"{name} 20/minute burst 5" for name in BUCKETS)],
        20,
        180,
    ),
    Figure(
        "edge.svg",
        "A caller that knows the edge: bursts around the full minute",
        "One call at 0:05 opens the fixed window; 30 calls before 1:05 and 30 calls behind it.",
        [5.0, *(50 + 0.48 * n for n in range(30)), *(65.2 + 0.48 * n for n in range(30))],
        [f"{name} 20/minute" for name in [*WINDOWS, *BUCKETS]],
        20,
        120,
    ),
    Figure(
        "burst.svg",
        "Bursts every 30 seconds: how the size of the burst decides",
        "Twelve calls at once. The average that is allowed is the same in each row: 20 a minute.",
        [30.0 * burst + 0.2 * n for burst in range(6) for n in range(12)],
        [
            "gcra 20/minute",
            "gcra 20/minute burst 10",
            "gcra 20/minute burst 1",
            "leaky-bucket 20/minute burst 10",
            "sliding-window 20/minute",
            "20/minute; 5/10s",
        ],
        20,
        180,
    ),
]


def main() -> int:
    """Writes the pictures, or compares them with the committed ones."""
    changed = []
    for figure in FIGURES:
        path, picture = IMAGES / figure.file, drawn(figure)
        if "--check" not in sys.argv[1:]:
            path.write_text(picture, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != picture:
            changed.append(figure.file)
    if changed:
        print(f"not what the limiter says: {', '.join(changed)}. Run docs/plots/algorithms.py", file=sys.stderr)
    return len(changed)


if __name__ == "__main__":
    sys.exit(main())
