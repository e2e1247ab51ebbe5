"""Several processes call a service with strict books: how often it refuses them, and how much they use."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paths import ROOT
from strict_services import StrictServer

HERE = Path(__file__).parent
NODE = ROOT / "tests" / "node" / "programs" / "outgoing_load.mjs"


@dataclass(frozen=True)
class Case:
    """A service, and the limit that its callers know."""

    book: str
    limit: int
    window: float = 10.0
    dialect: str = "ietf"
    # None: the callers learn the limit from responses.
    policy: str | None = None
    burst: int = 0
    # The most tokens of a request. Each takes at least half of them. 0 counts requests.
    tokens: int = 0
    # The seconds that the service takes for a request.
    wait: float = 0.0

    def __str__(self) -> str:
        known = "limit given" if self.policy else "limit not given"
        burst = f" burst {self.burst}" if self.burst else ""
        return f"{self.book} {self.limit}/{self.window:g}s{burst}, {self.dialect}, {known}"

    @property
    def limits(self) -> list[dict[str, Any]]:
        one = {"book": self.book, "limit": self.limit, "window": self.window, "burst": self.burst}
        if not self.tokens:
            return [one]
        return [{**one, "limit": self.limit // self.tokens * 2}, {**one, "unit": "tokens"}]


@dataclass(frozen=True)
class Report:
    """The result of a run."""

    case: Case
    admitted: int
    refused: int
    # A row for each second of the service: its number, admitted and refused requests, and units.
    seconds: list[list[int]]
    # The used part of the allowed units, from the second window to the last whole one.
    share: float
    # For each process, the number of answers by their status.
    answers: list[dict[str, int]]
    # The longest time after a refusal until another request was still sent, in seconds.
    late: float

    def refused_from(self, second: float) -> int:
        return sum(row[2] for row in self.seconds if row[0] >= second)

    def line(self) -> str:
        return f"{self.case!s:64} {self.admitted:8} {self.refused:6} {self.share:7.1%} {self.late * 1000:7.0f} ms"


HEADING = f"{'service':64} {'admitted':>8} {'429':>6} {'used':>7} {'late by':>10}"


def run(
    case: Case,
    strict: StrictServer,
    store: str,
    prefix: str,
    clients: Sequence[str],
    *,
    windows: int,
    callers: int = 16,
    becomes: int | None = None,
) -> Report:
    """Calls the service for this many windows, from one process for each client. `fetch` is a client of Node.

    In the middle the limit changes to `becomes`, if that is given.
    """
    node = ["node", str(NODE)]
    python = [sys.executable, str(HERE / "outgoing_load.py")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(node if client == "fetch" else python, **pipes) for client in clients]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    # Waits for a whole second, so that no window of the service is cut.
    time.sleep(1 - time.time() % 1)
    service = strict.service_of(*case.limits, dialect=case.dialect)
    told = {
        "store": store,
        "prefix": prefix,
        "url": f"{service.url}/?wait={case.wait}",
        "policy": case.policy,
        "tokens": case.tokens,
        "callers": callers,
        "until": time.time() + case.window * windows,
    }
    for process, client in zip(processes, clients, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps({**told, "client": client}) + "\n")
        process.stdin.flush()
    if becomes is not None:
        time.sleep(case.window * (windows // 2))
        service.change(becomes)
    told_back = [json.loads(process.communicate(timeout=case.window * windows + 60)[0]) for process in processes]
    counts = service.counts()
    first, last = int(case.window), int(case.window * (windows - 1))
    used = sum(row[3] for row in counts["seconds"] if first <= row[0] < last)
    allowed = case.limit / case.window * (last - first)
    share = used / allowed if case.book != "concurrency" else counts["busy"] / (case.limit * case.window * windows)
    sent = {target: at for told in told_back for target, at in told["sent"].items()}
    late = latest_after_refusal(service.requests(), sent)
    answers = [told["answers"] for told in told_back]
    return Report(case, counts["admitted"], counts["refused"], counts["seconds"], share, answers, late)


def latest_after_refusal(requests: list[dict[str, Any]], sent: dict[str, float]) -> float:
    """Returns the longest time between a refusal and the sending of a later request that was refused, too, in seconds.

    Requests that had left before the refusal could not be stopped. `sent` has the times by their target.
    """
    latest, first = 0.0, None
    for request in requests:
        if request["status"] != 429:
            first = None
        else:
            first = request["at"] if first is None else first
            latest = max(latest, sent.get(request["target"], first) - first)
    return latest
