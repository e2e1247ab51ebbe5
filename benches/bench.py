"""Measures Tidegate beside its peers, and writes docs/benchmarks. `make bench` builds and installs what it needs,
and calls it.

    python benches/bench.py [--only python,node] [--quick] [--report | --list]

The parts are python, node, http, outgoing, memory, machine, postgres, denied, leases, server, start, bytes and keys. A
measured part replaces its figures in results.json. The page and the charts are then drawn from the figures of all
parts. `--report` only draws, `--list` only names the cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suite.case import Lengths, Part
from suite.charts import charts
from suite.comparison import standings
from suite.environment import environment, load
from suite.parts import PARTS
from suite.programs import Programs
from suite.report import failures, page
from suite.rounds import Progress, run_case

DOCS = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"


def read_results() -> dict[str, Any]:
    try:
        parts: dict[str, Any] = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))["parts"]
    except FileNotFoundError:
        return {}
    # In the order of the report.
    return {name: parts[name] for name in PARTS if name in parts}


def short(found: Any) -> Any:
    """Rounds each figure to six digits, since a measurement is good for three."""
    if isinstance(found, float):
        return float(f"{found:.6g}")
    if isinstance(found, list):
        return [short(one) for one in found]
    return {name: short(one) for name, one in found.items()} if isinstance(found, dict) else found


def write(parts: dict[str, Any]) -> None:
    DOCS.mkdir(parents=True, exist_ok=True)
    parts = {name: parts[name] for name in PARTS if name in parts}
    results = json.dumps({"parts": short(parts)}, indent=1, ensure_ascii=False)
    (DOCS / "results.json").write_text(results + "\n", encoding="utf-8")
    (DOCS / "README.md").write_text(page(parts, list(PARTS)), encoding="utf-8")
    for name, drawn in charts(parts).items():
        (DOCS / f"{name}.svg").write_text(drawn, encoding="utf-8")


def measure(part: Part, programs: Programs, lengths: Lengths, progress: Progress) -> dict[str, Any]:
    before, began = load(), time.monotonic()
    cases = []
    for case in part.cases:
        progress.next_case(part.name, case)
        cases.append(run_case(case, programs, lengths, progress))
    return {
        "title": part.title,
        "about": part.about,
        "taken": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": time.monotonic() - began,
        "quick": lengths.quick,
        "load": before,
        "environment": environment(),
        "cases": cases,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="short rounds, which only show that everything works")
    parser.add_argument("--report", action="store_true", help="measures nothing")
    parser.add_argument("--list", action="store_true", help="names the cases, and measures nothing")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name] or list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    if options.list:
        for name in chosen:
            part = PARTS[name](Lengths(options.quick))
            print("\n".join([f"{part.name}: {part.title}", *[f"    {case.name}" for case in part.cases]]))
        return 0
    parts = read_results()
    if not options.report:
        lengths = Lengths(options.quick)
        wanted = [PARTS[name](lengths) for name in PARTS if name in chosen]
        programs, progress = Programs(lengths), Progress(sum(len(part.cases) for part in wanted))
        for part in wanted:
            parts[part.name] = measure(part, programs, lengths, progress)
            # After each part, so that an interrupted run keeps what it has.
            write(parts)
    write(parts)
    for sentence in standings(parts, "ahead"):
        print(sentence)
    failed = failures({name: part for name, part in parts.items() if name in chosen})
    for sentence in failed:
        print(f"FAILED: {sentence}")
    print(f"{DOCS / 'README.md'} is written.")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the parts that were done are written")
