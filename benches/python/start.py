"""What an import adds to a fresh process.

    python start.py language=python contender=tidegate runs=7

Its figure is the time of a process that imports, less that of one that does nothing, in ms: both start in turn, and
each time is the median of so many. Beside it prints the time of the statement itself, as the process measures it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"throttled-py": "throttled", "pyrate-limiter": "pyrate_limiter"}


def programs(language: str, package: str) -> tuple[list[str], str, str]:
    """What runs a program, one that imports and says how long that took, and one that does nothing."""
    if language == "python":
        timed = f"import time\nbegan = time.perf_counter()\nimport {MODULES.get(package, package)}\n"
        return [sys.executable, "-c"], timed + "print((time.perf_counter() - began) * 1000)", "print(0)"
    # A file of this name would lie where the packages are found.
    node = [
        shutil.which("node") or "node",
        "--input-type=module" if language == "esm" else "--input-type=commonjs",
        "-e",
    ]
    load = f"await import('{package}')" if language == "esm" else f"require('{package}')"
    return node, f"const began = performance.now(); {load}; console.log(performance.now() - began)", "console.log(0)"


def run(command: list[str], program: str) -> tuple[float, float]:
    """The time of a process, and the one that it prints."""
    began = time.perf_counter()
    done = subprocess.run([*command, program], cwd=ROOT, capture_output=True, text=True, check=True)
    return (time.perf_counter() - began) * 1_000, float(done.stdout)


def main() -> None:
    arguments = dict(argument.split("=", 1) for argument in sys.argv[1:])
    command, imports, nothing = programs(arguments["language"], arguments["contender"])
    run(command, imports)
    with_import, without = [], []
    for _ in range(int(arguments["runs"])):
        with_import.append(run(command, imports))
        without.append(run(command, nothing)[0])
    value = statistics.median(took for took, _ in with_import) - statistics.median(without)
    statement = statistics.median(took for _, took in with_import)
    print(json.dumps({"value": value, "decisions": 1, "beside": {"the statement, ms": statement}}))


if __name__ == "__main__":
    main()
