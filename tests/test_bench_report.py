"""The report of `make bench`: the tables, sentences and charts of known figures."""

from __future__ import annotations

import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "benches"))

from suite.case import NANOSECONDS, RATE, REQUESTS, Lengths
from suite.charts import charts
from suite.comparison import ratio_of, standings
from suite.parts import PARTS
from suite.parts.server import scripts
from suite.report import case_table, failures, page
from suite.statistics import Spread

Results = dict[str, Any]


def contender(name: str, role: str, *rounds: float | None, **more: Any) -> Results:
    return {"name": name, "role": role, "rounds": list(rounds), "beside": {}, "errors": [], **more}


def case(unit: str, *contenders: Results, **more: Any) -> Results:
    known = {"name": "a case", "unit": unit, "how": "So.", "reference": "tidegate", "share_of": "", "overview": True}
    return {**known, **more, "contenders": list(contenders)}


def parts(*cases: Results, **more: Any) -> dict[str, Results]:
    part = {
        "title": "Node on Redis",
        "about": "About.",
        "taken": "2026-01-01 00:00 UTC",
        "load": "0.1",
    }
    environment = {"Processor": "A <fast> & quiet one", "Redis": "7.0.15"}
    return {"node": {**part, "seconds": 1.0, "quick": False, "environment": environment, "cases": list(cases), **more}}


class Floors(unittest.TestCase):
    def test_increx_is_one_where_the_server_has_it(self) -> None:
        names = {
            version: [one.name for one in scripts(version)] for version in ("7.0.15", "8.10.0", "8.8.1", "unknown")
        }
        self.assertEqual(names["8.8.1"][-1], "INCREX, pipelined")
        self.assertEqual(names["8.10.0"], names["8.8.1"])
        self.assertEqual(names["7.0.15"], names["8.8.1"][:-1])
        self.assertEqual(names["unknown"], names["7.0.15"])


class Ratios(unittest.TestCase):
    def test_are_taken_within_rounds(self) -> None:
        # The machine was three times as slow in the second round. The medians alone would give 2.00 for every round.
        other = contender("peer", "peer", 500.0, 200.0, 600.0)
        one = case(RATE, contender("tidegate", "ours", 1_000.0, 300.0, 1_200.0), other)
        self.assertEqual(ratio_of(one, other), Spread(2.0, 1.5, 2.0))

    def test_of_costs_are_above_one_where_the_peer_costs_more(self) -> None:
        other = contender("peer", "peer", 30.0, 40.0)
        one = case(NANOSECONDS, contender("tidegate", "ours", 10.0, 20.0), other)
        self.assertEqual(ratio_of(one, other), Spread(2.5, 2.0, 3.0))

    def test_leave_out_rounds_that_failed(self) -> None:
        other = contender("peer", "peer", None, 100.0)
        one = case(RATE, contender("tidegate", "ours", 400.0, 300.0), other)
        self.assertEqual(ratio_of(one, other), Spread(3.0, 3.0, 3.0))
        self.assertIsNone(ratio_of(one, contender("peer", "peer", None, None)))


class Sentences(unittest.TestCase):
    def test_a_peer_is_ahead_when_it_is_better_in_every_round(self) -> None:
        found = parts(
            case(
                RATE,
                contender("tidegate", "ours", 90.0, 80.0, 70.0),
                contender("faster", "peer", 100.0, 100.0, 100.0),
                contender("mixed", "peer", 100.0, 75.0, 60.0),
                contender("slower", "peer", 10.0, 10.0, 10.0),
                contender("bare", "floor", 1_000.0, 1_000.0, 1_000.0),
            )
        )
        ahead = ["Node on Redis, a case: `faster` is ahead. `tidegate` reaches 0.80 (0.70 to 0.90) of its rate."]
        self.assertEqual(standings(found, "ahead"), ahead)
        self.assertEqual(len(standings(found, "level")), 1)
        self.assertIn("no clear difference from `mixed`", standings(found, "level")[0])
        self.assertIn(f"- {ahead[0]}\n", page(found, ["node"]))

    def test_of_costs(self) -> None:
        ours, peer = contender("tidegate", "ours", 12.0, 15.0), contender("governor", "peer", 10.0, 10.0)
        said = standings(parts(case(NANOSECONDS, ours, peer)), "ahead")
        self.assertEqual(len(said), 1)
        self.assertIn("`governor` is ahead. `tidegate` takes 1.35 (1.20 to 1.50) times its time.", said[0])

    def test_no_peer_is_ahead(self) -> None:
        ours, peer = contender("tidegate", "ours", 5.0), contender("governor", "peer", 10.0)
        self.assertIn("Nowhere in these figures.", page(parts(case(NANOSECONDS, ours, peer)), ["node"]))

    def test_failures_are_said(self) -> None:
        failed = contender("peer", "peer", None, 5.0, errors=["exit status 1: no memory"])
        found = parts(case(RATE, contender("tidegate", "ours", 10.0, 10.0), failed))
        self.assertEqual(
            failures(found),
            ["Node on Redis, a case: `peer` failed in 1 of 2 rounds: exit status 1: no memory"],
        )
        self.assertIn("## What did not run", page(found, ["node"]))

    def test_quick_runs_and_missing_parts_are_said(self) -> None:
        text = page(parts(case(RATE, contender("tidegate", "ours", 1.0)), quick=True), ["python", "node"])
        self.assertIn("A quick run", text)
        self.assertIn("Not measured: python.", text)


class Tables(unittest.TestCase):
    def test_of_rates_with_shares_and_what_is_beside(self) -> None:
        lines = case_table(
            case(
                REQUESTS,
                contender("bare", "floor", 1_000.0, 2_000.0),
                contender("tidegate", "ours", 900.0, 1_600.0, beside={"application CPU, µs": [1.0, 3.0]}),
                contender("flask-limiter", "peer", 300.0, 400.0),
                contender("broken", "peer", None, None),
                share_of="bare",
            )
        )
        self.assertEqual(
            lines,
            [
                "|  | requests/s | `tidegate` is … times as fast | share of `bare` | application CPU, µs |",
                "| --- | ---: | ---: | ---: | ---: |",
                "| bare (floor) | 1,500 (1,000 to 2,000) | 0.85 (0.80 to 0.90) |  |  |",
                "| **tidegate** | 1,250 (900 to 1,600) |  | 0.85 (0.80 to 0.90) | 2.00 |",
                "| flask-limiter | 350 (300 to 400) | 3.50 (3.00 to 4.00) | 0.25 (0.20 to 0.30) |  |",
            ],
        )

    def test_of_costs(self) -> None:
        lines = case_table(case(NANOSECONDS, contender("tidegate", "ours", 50.0), contender("governor", "peer", 100.4)))
        self.assertEqual(lines[0], "|  | ns per check | times the cost of `tidegate` |")
        self.assertEqual(lines[2:], ["| **tidegate** | 50.0 |  |", "| governor | 100 | 2.01 |"])


class Charts(unittest.TestCase):
    def test_are_valid_and_show_every_figure(self) -> None:
        found = parts(
            case(
                RATE,
                contender("tidegate", "ours", 320_000.0, 330_000.0),
                contender("a & b <c>", "peer", 100_000.0, 100_000.0),
                contender("bare", "floor", 500_000.0),
            ),
            case(NANOSECONDS, contender("tidegate", "ours", 5.0), overview=False),
        )
        drawn = charts(found)
        self.assertEqual(sorted(drawn), ["node", "overview"])
        bars = {}
        for name, text in drawn.items():
            root = ElementTree.fromstring(text)
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertIn("prefers-color-scheme: dark", text)
            texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
            self.assertIn("a & b <c>", texts)
            self.assertIn("325,000", texts)
            rects = root.iter("{http://www.w3.org/2000/svg}rect")
            bars[name] = [one.get("class") for one in rects if one.get("class") != "page"]
        self.assertEqual(bars["node"], ["ours", "peer", "floor", "ours"])
        # A floor is no peer, and would need its explanation.
        self.assertEqual(bars["overview"], ["ours", "peer"])

    def test_bars_are_as_long_as_their_figures(self) -> None:
        found = parts(case(RATE, contender("tidegate", "ours", 200.0), contender("peer", "peer", 50.0)))
        root = ElementTree.fromstring(charts(found)["node"])
        width = {one.get("class"): float(one.get("width", "")) for one in root.iter("{http://www.w3.org/2000/svg}rect")}
        self.assertAlmostEqual(width["ours"] / width["peer"], 4, places=1)


class Cases(unittest.TestCase):
    def test_every_part_names_its_contenders_once(self) -> None:
        for name, make in PARTS.items():
            part = make(Lengths(quick=True))
            self.assertEqual(part.name, name)
            self.assertEqual(len({one.name for one in part.cases}), len(part.cases), name)
            for one in part.cases:
                names = [contender.name for contender in one.contenders]
                self.assertEqual(len(set(names)), len(names), f"{name}, {one.name}")
                for named in (one.reference, one.share_of):
                    self.assertIn(named, ["", *names], f"{name}, {one.name}")


if __name__ == "__main__":
    unittest.main()
