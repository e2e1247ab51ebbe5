"""The programs of the contenders, pinned to their cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .case import Case, Contender, Lengths

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SECONDS = 300


class ContenderError(Exception):
    """A contender has failed, so its round has no figure."""


def cores() -> tuple[int, int]:
    """The core of the clients, and that of the servers."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[min(1, len(usable) - 1)]


def rust_program() -> str:
    words = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return str(Path(json.loads(done.stdout)["target_directory"]) / "release" / "contender")


class Programs:
    """Starts a contender for one round, and waits for its figure."""

    def __init__(self, lengths: Lengths) -> None:
        self.lengths = lengths
        self.rust = rust_program()
        python, benches = sys.executable, ROOT / "benches"
        self.commands = {
            "python": [python, str(benches / "python" / "contender.py")],
            "http": [python, str(benches / "python" / "http_round.py")],
            "httpx": [python, str(benches / "python" / "calls.py")],
            "floor": [python, str(benches / "python" / "redis_floor.py")],
            "start": [python, str(benches / "python" / "start.py")],
            "first": [python, str(benches / "python" / "first_calls.py")],
            "node": ["node", "--expose-gc", str(benches / "node" / "contender.mjs")],
            "fetch": ["node", str(benches / "node" / "calls.mjs")],
            "rust": [self.rust],
        }
        self.running: list[subprocess.Popen[str]] = []

    def run(self, case: Case, contender: Contender, urls: dict[str, str]) -> dict[str, Any]:
        client, server = cores()
        given = {"warm": str(self.lengths.warm), "seconds": str(self.lengths.seconds)}
        if contender.program in ("http", "fetch", "httpx"):
            given |= {"core": str(server), "load": self.rust}
        given |= contender.arguments
        # A contender may name its servers. By default it uses the first ones of its case.
        if case.servers or "servers" in given:
            given.setdefault("url", urls[given.pop("servers", case.servers[0] if case.servers else "single")])
        processes = int(given.pop("processes", 1))
        pinned = ["taskset", "-c", f"{client},{server}" if case.both_cores else str(client)]
        words = [*pinned, *self.commands[contender.program], *[f"{name}={value}" for name, value in given.items()]]
        # Several processes at once are one contender: their rates add up.
        figures = self._figures([words] * processes)
        whole = {name: sum(each[name] for each in figures) for name in ("value", "decisions")}
        return whole if processes > 1 else figures[0]

    def _figures(self, programs: list[list[str]]) -> list[dict[str, Any]]:
        pipe = subprocess.PIPE
        self.running = [subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) for words in programs]
        try:
            return [figures_of(program) for program in self.running]
        except subprocess.TimeoutExpired:
            raise ContenderError(f"no figure after {LONGEST_SECONDS} s") from None
        finally:
            # Nothing stays behind, not even on Ctrl-C. Programs end their own children when they are terminated.
            for program in self.running:
                end(program)


def figures_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits until a program ends, and returns the figures that it printed."""
    output, errors = program.communicate(timeout=LONGEST_SECONDS)
    lines = output.strip().splitlines()
    if program.returncode != 0 or not lines:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise ContenderError(f"exit status {program.returncode}: {last}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def end(program: subprocess.Popen[str]) -> None:
    """Ends a program that still runs."""
    if program.poll() is not None:
        return
    program.terminate()
    try:
        program.wait(20)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
