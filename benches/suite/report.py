"""docs/benchmarks/README.md: the tables of all parts, and the conclusions from them."""

from __future__ import annotations

import statistics
from typing import Any

from .case import OURS, RATES
from .comparison import contender_of, ratio_of, standings
from .figures import better, cost, of_unit, with_range
from .statistics import known, shares, spread

Results = dict[str, Any]

HEAD = """# Benchmarks

`make bench` writes this page, [results.json](results.json) with every round, and the charts. It installs the peers in
pinned versions, starts its own Redis servers on free ports, and measures everything in one run. `make bench ONLY=node`
measures one part again; several are separated by commas. The parts: {parts}.

![Tidegate beside its peers](overview.svg)

## How it is measured

- Each contender is a process that is started once per round, warms up, and is measured. The contenders of a case take
  turns, in reverse order every second round.
- A figure is the median of all rounds; the least and the most stand in brackets. A ratio is taken within each round,
  and the median is that of the ratios, because the speed of a machine changes from minute to minute.
- Peers have their default settings, but for asyncio up to 512 connections instead of 100, which 256 callers exceed.
- Clients are pinned to one core and the server to another, or both to one where the case says so.
- `Redis CPU` is the CPU time of the server's main thread over all decisions of the process, its warm-up included;
  `client CPU` that of the measured process.
- A *floor* does less than a limiter has to: redis-benchmark, a bare script, a service without a limiter.
"""


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    align = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, align, *rows)]


def case_table(case: Results) -> list[str]:
    """The table of one case, as lines of Markdown."""
    unit, reference = case["unit"], case["reference"]
    shown = of_unit(unit)
    figures = [contender for contender in case["contenders"] if known(contender["rounds"])]
    beside = list(dict.fromkeys(name for contender in figures for name in contender["beside"]))
    compared = f"`{reference}` is … times as fast" if unit in RATES else f"times the cost of `{reference}`"
    head = ["", unit, compared]
    share_of = case["share_of"]
    head += [f"share of `{share_of}`"] if share_of else []
    rows = []
    for contender in figures:
        name = contender["name"]
        # In some cases all contenders are ours. Bold would mean nothing then.
        mixed = any(other["role"] != OURS for other in figures)
        cells = [f"**{name}**" if mixed and contender["role"] == OURS else name]
        if contender["role"] == "floor":
            cells[0] += " (floor)"
        cells.append(with_range(spread(known(contender["rounds"])), shown))
        ratio = ratio_of(case, contender)
        cells.append("" if ratio is None else with_range(ratio, cost))
        if share_of:
            share = shares(contender_of(case, share_of)["rounds"], contender["rounds"])
            cells.append("" if share is None or name == share_of else with_range(share, cost))
        for column in beside:
            values = contender["beside"].get(column)
            cells.append(_beside(column, statistics.median(values)) if values else "")
        rows.append(cells)
    return _rows([*head, *beside], rows)


def _beside(column: str, value: float) -> str:
    return of_unit(column)(value)


def failures(parts: dict[str, Results]) -> list[str]:
    found = []
    for part in parts.values():
        for case in part["cases"]:
            for contender in case["contenders"]:
                if contender["errors"]:
                    count = f"{len(contender['errors'])} of {len(contender['rounds'])} rounds"
                    found.append(
                        f"{part['title']}, {case['name']}: `{contender['name']}` failed in {count}: "
                        f"{contender['errors'][0]}"
                    )
    return found


def _list(title: str, about: str, sentences: list[str], none: str) -> list[str]:
    return [f"## {title}", "", *([about, "", *[f"- {one}" for one in sentences]] if sentences else [none]), ""]


def _environments(parts: dict[str, Results]) -> list[str]:
    """The machine and the versions of the measurements: one list for each different environment."""
    different: list[tuple[dict[str, str], list[str]]] = []
    for part in parts.values():
        same = next((names for environment, names in different if environment == part["environment"]), None)
        if same is None:
            different.append((part["environment"], [part["title"]]))
        else:
            same.append(part["title"])
    lines = ["## Machine and versions", ""]
    for environment, titles in different:
        if len(different) > 1:
            lines += [f"For {', '.join(titles)}:", ""]
        lines += [*[f"- {name}: {value}" for name, value in environment.items()], ""]
    return lines


def _part(name: str, part: Results) -> list[str]:
    lines = [f"## {part['title']}", "", part["about"], ""]
    taken = f"Taken {part['taken']}, in {part['seconds']:.0f} s. "
    taken += f"The load of the machine was {part['load']} before."
    lines += [taken + (" A quick run: it shows only that everything works." if part["quick"] else ""), ""]
    lines += [f"![{part['title']}]({name}.svg)", ""]
    for case in part["cases"]:
        lines += [f"### {part['title']}: {case['name']}", "", f"{case['how']} {better(case['unit']).capitalize()}.", ""]
        lines += [*case_table(case), ""]
    return lines


def page(parts: dict[str, Results], names: list[str]) -> str:
    """The whole page. `names` are all parts, also those that were not measured yet."""
    lines = [HEAD.format(parts=", ".join(f"`{name}`" for name in names))]
    if missing := [name for name in names if name not in parts]:
        lines += [f"Not measured: {', '.join(missing)}.", ""]
    lines += _list(
        "Where a peer is ahead",
        "Computed from the tables below: in every round the peer was better. The reasons are those of a profile.",
        standings(parts, "ahead"),
        "Nowhere in these figures.",
    )
    level = standings(parts, "level")
    if level:
        lines += _list(
            "Where there is no clear difference", "The rounds disagree, or the figures are equal.", level, ""
        )
    if failed := failures(parts):
        lines += _list("What did not run", "These have no figure, or one of fewer rounds.", failed, "")
    for name in names:
        if name in parts:
            lines += _part(name, parts[name])
    return "\n".join([*lines, *_environments(parts)]).rstrip() + "\n"
