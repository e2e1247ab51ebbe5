"""Runs the tests with the wall clock at 23:59:30 UTC of the last day of the year, in a time zone that is 14 hours
ahead, and in another locale: no test depends on the date, the hour, the time zone or the locale.

    python3 scripts/workflows/clock.py rust python node     (all of them without arguments)
    python3 scripts/workflows/clock.py rust deadlines::     (further words: tests, or files, that have one in the name)

Every test of Rust, and every file of the other languages, is a separate process that begins at that moment, so that
midnight and the new year pass while it runs. Its servers and other children have the same clock. Monotonic clocks stay
real. The clock is tests/servers/harness/clock.c, which is preloaded. libfaketime would be one more package, and
restarts the clock in each child.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/servers/harness/clock.c"
PYTHON = os.environ.get("TIDEGATE_PYTHON", str(ROOT / ".cache/venv/bin/python"))
LANGUAGES = ("rust", "python", "node")
# Turkish has an i without a dot, German a comma in numbers.
LOCALES = ("tr_TR.UTF-8", "de_DE.UTF-8")
# Only ends processes that would wait for ever.
LONGEST = 900.0


@dataclass
class Job:
    title: str
    command: list[str]
    folder: Path


def environment() -> dict[str, str]:
    library = ROOT / ".cache/clock/clock.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    year = datetime.datetime.now(datetime.timezone.utc).year
    starts = datetime.datetime(year, 12, 31, 23, 59, 30, tzinfo=datetime.timezone.utc)
    listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.lower()
    there = {name.replace("utf8", "utf-8") for name in listed.split()}
    locale = next((name for name in LOCALES if name.lower() in there), "C")
    print(
        f"clock: every process begins at {starts:%Y-%m-%d %H:%M:%S} UTC, TZ=Pacific/Kiritimati, LC_ALL={locale}",
        flush=True,
    )
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "TIDEGATE_CLOCK_STARTS": str(int(starts.timestamp())),
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": locale,
    }


def refuse_another_clock(languages: list[str], variables: dict[str, str]) -> None:
    """Ends the program if processes do not have the clock, because their tests would show nothing."""
    programs = {
        "rust": ["date", "-u", "+%m-%dT%H:%M"],
        "python": [PYTHON, "-c", "import datetime as d; print(d.datetime.now(d.timezone.utc).isoformat())"],
        "node": ["node", "-p", "new Date().toISOString()"],
    }
    for language in languages:
        said = subprocess.run(programs[language], env=variables, capture_output=True, text=True, check=True).stdout
        if "12-31T23:59" not in said:
            sys.exit(f"clock: {' '.join(programs[language])} says {said.strip()}: the clock is not preloaded")


def rust() -> list[Job]:
    command = ["cargo", "test", "--workspace", "--exclude", "tidegate-benches", "--locked", "--no-run"]
    command += ["--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    jobs = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        program = message.get("executable")
        if message.get("reason") != "compiler-artifact" or not program or not message["profile"]["test"]:
            continue
        folder = Path(message["manifest_path"]).parent
        listed = subprocess.run(
            [program, "--list", "--format", "terse"], cwd=folder, capture_output=True, text=True, check=True
        )
        for name in re.findall(r"^(.*): test$", listed.stdout, re.MULTILINE):
            jobs.append(Job(f"{message['target']['name']}::{name}", [program, "--exact", name], folder))
    return jobs


def python() -> list[Job]:
    files = [*sorted(ROOT.glob("tests/python/test_*.py")), ROOT / "tests/servers/test_servers.py"]
    return [Job(str(file.relative_to(ROOT)), [PYTHON, "-m", "pytest", "--quiet", str(file)], ROOT) for file in files]


def node() -> list[Job]:
    files = [
        file for folder in ("node", "node/web", "cross") for file in sorted(ROOT.glob(f"tests/{folder}/*.test.mjs"))
    ]
    return [Job(str(file.relative_to(ROOT)), ["node", "--test", str(file)], ROOT) for file in files]


def run(job: Job, variables: dict[str, str]) -> tuple[Job, float, str | None]:
    """Runs a job, and returns it with its seconds and, if it failed, its output."""
    began = time.monotonic()
    process = subprocess.Popen(
        job.command,
        cwd=job.folder,
        env={**variables, "CARGO_MANIFEST_DIR": str(job.folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LONGEST)
        failure = None if process.returncode == 0 else said.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        failure = f"{said.decode(errors='replace')}\nit did not end within {LONGEST:.0f} s"
    return job, time.monotonic() - began, failure


def main() -> int:
    languages = [word for word in sys.argv[1:] if word in LANGUAGES] or list(LANGUAGES)
    words = [word for word in sys.argv[1:] if word not in LANGUAGES]
    variables = environment()
    refuse_another_clock(languages, variables)
    makers = {"rust": rust, "python": python, "node": node}
    jobs = [job for language in languages for job in makers[language]()]
    jobs = [job for job in jobs if not words or any(word in job.title for word in words)]
    if not jobs:
        sys.exit(f"clock: no test has a name with {' or '.join(words)}")
    workers = int(os.environ.get("TIDEGATE_JOBS", os.cpu_count() or 2))
    print(f"clock: {len(jobs)} processes, {workers} at a time", flush=True)
    done = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for result in concurrent.futures.as_completed([pool.submit(run, job, variables) for job in jobs]):
            job, seconds, failure = result.result()
            done.append((seconds, job.title))
            if failure is not None:
                print(f"\n== FAILED {job.title} ({seconds:.1f} s)\n{failure[-6000:]}", flush=True)
                done[-1] = (seconds, f"{job.title}: FAILED")
    slowest = ", ".join(f"{title} {seconds:.0f} s" for seconds, title in sorted(done, reverse=True)[:5])
    failed = [title for _, title in done if title.endswith(": FAILED")]
    print(f"\nclock: {len(done)} ran, {len(failed)} failed; the longest: {slowest}")
    print("\n".join(sorted(failed)), end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
