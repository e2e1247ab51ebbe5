"""Counts the instructions of one check in memory, with valgrind's callgrind: `instructions.py PROGRAM [PROGRAM ...]`.

Each program is a build of `check-cost` (`cargo build --release -p tidegate-benches --bin check-cost`), of this checkout
and of another one to compare with. Only the loop of checks is counted, because a clock that calibrates itself takes a
different number of instructions in each run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile

CASES = ["policy-allowed", "policy-denied", "name-allowed", "name-denied"]
LOOP = "measured_checks"
FEW, MANY = 20_000, 120_000


def instructions(command: list[str]) -> int:
    with tempfile.NamedTemporaryFile() as out:
        collect = f"--toggle-collect=*{LOOP}*"
        valgrind = ["valgrind", "--tool=callgrind", collect, f"--callgrind-out-file={out.name}"]
        done = subprocess.run([*valgrind, *command], capture_output=True, text=True, check=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if collected is None:
        raise SystemExit(f"callgrind says nothing of instructions:\n{done.stderr}")
    return int(collected.group(1))


def per_check(program: list[str], case: str) -> float:
    runs = [instructions([*program, case, str(count)]) for count in (FEW, MANY)]
    return (runs[1] - runs[0]) / (MANY - FEW)


def main() -> None:
    programs = sys.argv[1:]
    if not programs:
        raise SystemExit(__doc__)
    print("case".ljust(16), *(program.rjust(24) for program in programs))
    for case in CASES:
        costs = [per_check(program.split(), case) for program in programs]
        shown = [f"{cost:.1f} ({cost / costs[0] - 1:+.1%})".rjust(24) for cost in costs]
        print(case.ljust(16), *shown)


if __name__ == "__main__":
    main()
