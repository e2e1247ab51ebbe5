"""Charts as SVG: bars with their ranges.

They bring their own background, so you can read them on a light and on a dark page, even if the page and the system
have different themes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from .case import OURS, RATES
from .comparison import is_floor
from .figures import of_unit
from .statistics import Spread, known, spread

Results = dict[str, Any]

STYLE = """
.page { fill: #ffffff; stroke: #d0d7de }
text { fill: #1f2328; font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
.title { font-size: 17px; font-weight: 600 }
.case { font-size: 13px; font-weight: 600 }
.quiet { fill: #59636e }
.ours { fill: #0969da } .peer { fill: #a3acb7 } .floor { fill: #d8dee4 }
.range { stroke: #1f2328; stroke-width: 1.2 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; stroke: #30363d }
text { fill: #f0f6fc } .quiet { fill: #9198a1 }
.ours { fill: #4493f8 } .peer { fill: #6e7681 } .floor { fill: #3d444d }
.range { stroke: #f0f6fc }
}"""

WIDTH, MARGIN, GAP = 1_000, 20, 24
ROW, HEAD, AFTER = 19, 24, 14


@dataclass(frozen=True)
class Bar:
    name: str
    role: str
    figure: Spread


@dataclass(frozen=True)
class Panel:
    """The bars of one case."""

    title: str
    unit: str
    bars: tuple[Bar, ...]

    @property
    def height(self) -> int:
        return HEAD + ROW * len(self.bars) + AFTER


def panel_of(case: Results, title: str, floors: bool) -> Panel | None:
    bars = []
    for contender in case["contenders"]:
        values = known(contender["rounds"])
        if values and (floors or not is_floor(contender) or contender["name"] == case["share_of"]):
            bars.append(Bar(contender["name"], contender["role"], spread(values)))
    return Panel(title, case["unit"], tuple(bars)) if bars else None


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{kind} text-anchor="{anchor}">{escape(text)}</text>'


def _panel(panel: Panel, left: float, top: float, width: float) -> list[str]:
    label, value = 226, 76
    space = width - label - value
    longest = max(bar.figure.most for bar in panel.bars) or 1
    shown = of_unit(panel.unit)
    unit = panel.unit if panel.unit in RATES else f"{panel.unit}, less is better"
    drawn = [
        f'<text x="{left:.0f}" y="{top + 14:.0f}" class="case">{escape(panel.title)}'
        f'<tspan class="quiet" font-weight="400" dx="8">{escape(unit)}</tspan></text>'
    ]
    for number, bar in enumerate(panel.bars):
        y = top + HEAD + ROW * number
        start = left + label
        middle = y + ROW / 2

        def at(figure: float, start: float = start) -> float:
            return start + space * figure / longest

        drawn.append(_text(start - 8, middle + 4, bar.name, "" if bar.role == OURS else "quiet", "end"))
        length = max(1.0, at(bar.figure.median) - start)
        drawn.append(
            f'<rect x="{start:.1f}" y="{y + 3:.1f}" width="{length:.1f}" height="{ROW - 6}" rx="2" class="{bar.role}"/>'
        )
        if bar.figure.least < bar.figure.most:
            one, two = at(bar.figure.least), at(bar.figure.most)
            drawn.append(f'<path d="M{one:.1f} {middle:.1f}H{two:.1f}M{one:.1f} {middle - 3:.1f}v6M{two:.1f} ')
            drawn[-1] += f'{middle - 3:.1f}v6" class="range"/>'
        drawn.append(_text(at(bar.figure.most) + 7, middle + 4, shown(bar.figure.median)))
    return drawn


def drawing(title: str, subtitle: str, panels: list[Panel]) -> str:
    """A chart of two columns, the left one filled first."""
    half = sum(panel.height for panel in panels) / 2
    columns: tuple[list[Panel], list[Panel]] = ([], [])
    for panel in panels:
        reached = sum(one.height for one in columns[0])
        columns[1 if columns[1] or (columns[0] and reached + panel.height / 2 > half) else 0].append(panel)
    width = (WIDTH - 2 * MARGIN - GAP) / 2
    top = 68
    height = top + max(sum(panel.height for panel in column) for column in columns) + MARGIN - AFTER
    drawn = []
    for number, column in enumerate(columns):
        y = float(top)
        for panel in column:
            drawn += _panel(panel, MARGIN + number * (width + GAP), y, width)
            y += panel.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
    )
    page = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" class="page"/>'
    texts = [_text(MARGIN, 30, title, "title"), _text(MARGIN, 50, subtitle, "quiet")]
    return "\n".join([head, f"<style>{STYLE}\n</style>", page, *texts, *drawn, "</svg>"]) + "\n"


SUBTITLE = "Median of all rounds; the thin line is their range. "


def charts(parts: dict[str, Results]) -> dict[str, str]:
    """The drawing of each part by its name, and `overview`."""
    found, best = {}, []
    for name, part in parts.items():
        panels = [panel_of(case, case["name"], floors=True) for case in part["cases"]]
        if drawn := [panel for panel in panels if panel is not None]:
            found[name] = drawing(part["title"], SUBTITLE + _conditions(part), drawn)
        chosen = [case for case in part["cases"] if case["overview"]]
        best += [panel_of(case, f"{part['title']}: {case['name']}", floors=False) for case in chosen]
    if drawn := [panel for panel in best if panel is not None]:
        newest = max(parts.values(), key=lambda part: str(part["taken"]))
        found["overview"] = drawing("Tidegate beside its peers", SUBTITLE + _conditions(newest), drawn)
    return found


def _conditions(part: Results) -> str:
    quick = " A quick run: it shows only that everything works." if part["quick"] else ""
    return f"{part['environment'].get('Processor', '')}, Redis {part['environment'].get('Redis', '')}.{quick}"
