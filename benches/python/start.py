"""The time that an import adds to a fresh process.

    python start.py language=python contender=tidegate runs=7

The figure is the time of a process that imports, less the time of one that does nothing, in ms. The two run in turn,
and each time is the median of all runs. Beside it stand the CPU time, which other work of the machine changes less, and
the time of the import statement, as the process measures it.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"throttled-py": "throttled", "pyrate-limiter": "pyrate_limiter"}


def programs(language: str, package: str) -> tuple[list[str], str, str]:
    """Returns the command of the runtime, a program that prints the time of its import, and one that does nothing."""
    if language == "python":
        timed = f"import time\nbegan = time.perf_counter()\nimport {MODULES.get(package, package)}\n"
        return [sys.executable, "-c"], timed + "print((time.perf_counter() - began) * 1000)", "print(0)"
    # With `-e`, Node looks for packages from the working directory and needs no file beside them.
    node = [
        shutil.which("node") or "node",
        "--input-type=module" if language == "esm" else "--input-type=commonjs",
        "-e",
    ]
    load = f"await import('{package}')" if language == "esm" else f"require('{package}')"
    return node, f"const began = performance.now(); {load}; console.log(performance.now() - began)", "console.log(0)"


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], program: str) -> list[float]:
    """The time of a process and its CPU time, and the time that it prints."""
    began, cpu = time.perf_counter(), cpu_of_children()
    done = subprocess.run([*command, program], cwd=ROOT, capture_output=True, text=True, check=True)
    took, cpu = time.perf_counter() - began, cpu_of_children() - cpu
    return [took * 1_000, cpu * 1_000, float(done.stdout)]


def main() -> None:
    arguments = dict(argument.split("=", 1) for argument in sys.argv[1:])
    command, imports, nothing = programs(arguments["language"], arguments["contender"])
    run(command, imports)
    with_import, without = [], []
    for _ in range(int(arguments["runs"])):
        with_import.append(run(command, imports))
        without.append(run(command, nothing))
    took, cpu, statement = [statistics.median(each) for each in zip(*with_import, strict=True)]
    bare, bare_cpu, _ = [statistics.median(each) for each in zip(*without, strict=True)]
    beside = {"CPU, ms": cpu - bare_cpu, "the statement, ms": statement}
    print(json.dumps({"value": took - bare, "decisions": 1, "beside": beside}))


if __name__ == "__main__":
    main()
