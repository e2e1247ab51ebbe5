"""The rounds of a case: its contenders take turns, in reverse order every second time."""

from __future__ import annotations

import sys
import time
from typing import Any

from .case import Case, Contender, Lengths
from .programs import ContenderError, Programs
from .servers import CaseServers
from .statistics import known, spread

Results = dict[str, Any]


class Progress:
    """One line for each case, and on a terminal also the contender that runs now."""

    def __init__(self, cases: int) -> None:
        self.cases, self.case, self.began = cases, 0, time.monotonic()

    def next_case(self, part: str, case: Case) -> None:
        self.case += 1
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        print(f"[{self.case}/{self.cases}, {minutes}:{seconds:02}] {part}: {case.name}", flush=True)

    def now(self, number: int, rounds: int, contender: Contender) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K    round {number} of {rounds}: {contender.name} …", end="", file=sys.stderr, flush=True)

    def result(self, found: Results, unit: str) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        if values := known(found["rounds"]):
            one = spread(values)
            digits = 0 if one.median >= 100 else 2
            shown = [f"{value:,.{digits}f}" for value in (one.median, one.least, one.most)]
            print(f"    {found['name']:<42} {shown[0]:>12} ({shown[1]} to {shown[2]}) {unit}", flush=True)
        for error in found["errors"]:
            print(f"    {found['name']:<42} FAILED: {error}", flush=True)


def measure(case: Case, contender: Contender, programs: Programs, servers: CaseServers, found: Results) -> None:
    """One round of one contender."""
    kind = contender.arguments.get("servers", case.servers[0] if case.servers else "")
    before = (servers.cpu(kind), servers.calls(kind)) if kind else (0.0, 0)
    try:
        figures = programs.run(case, contender, servers.urls)
    except ContenderError as error:
        found["errors"].append(str(error))
        found["rounds"].append(None)
        return
    beside = dict(figures.get("beside", {}))
    decisions = figures["decisions"]
    cpu = (servers.cpu(kind) - before[0]) * 1e6 / decisions if kind else 0.0
    if case.server_cpu:
        beside["checks/s"] = figures["value"]
    elif kind in ("single", "cluster") and decisions > 1_000:
        beside["Redis CPU, µs"] = cpu
    if case.calls:
        beside["Redis calls per 100"] = (servers.calls(kind) - before[1]) * 100 / decisions
    found["rounds"].append(cpu if case.server_cpu else figures["value"])
    for name, value in beside.items():
        found["beside"].setdefault(name, []).append(value)


def run_case(case: Case, programs: Programs, lengths: Lengths, progress: Progress) -> Results:
    rounds = min(case.rounds, lengths.rounds) if case.rounds else lengths.rounds
    every: list[Results] = [
        {"name": contender.name, "role": contender.role, "rounds": [], "beside": {}, "errors": []}
        for contender in case.contenders
    ]
    with CaseServers(case) as servers:
        for contender in case.prepare:
            programs.run(case, contender, servers.urls)
        for number in range(rounds):
            pairs = list(zip(case.contenders, every, strict=True))
            for contender, found in pairs if number % 2 == 0 else reversed(pairs):
                progress.now(number + 1, rounds, contender)
                measure(case, contender, programs, servers, found)
    for found in every:
        progress.result(found, case.unit)
    return {
        "name": case.name,
        "unit": case.unit,
        "how": case.how,
        "reference": case.reference or case.contenders[0].name,
        "share_of": case.share_of,
        "overview": case.overview,
        "reason": case.reason,
        "contenders": every,
    }
