"""The programs of the pages run unchanged, in separate processes, against real servers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.process import kill, spawn
from model_services import ModelServer
from snippets import PROGRAMS, all_blocks
from strict_services import StrictServer
from tidegate import Limiter, Policy

PYTHON = [sys.executable, "-u"]
# Ends a wait that would last for ever. On a busy machine an import of Celery has taken a minute.
LONG = 300
# Twenty calls a second, as in the programs. If a busy machine stalls four callers and they go on together, the bucket
# has room for them. Callers that do not wait for each other empty it at once.
PARTNER = {"book": "token-bucket", "limit": 20, "window": 1, "burst": 10}


def write(title: str, folder: Path) -> str:
    """Writes a program of a page into a folder. Returns its name."""
    (block,) = [block for block in all_blocks() if block.title == title]
    (folder / title).write_text(block.code, encoding="utf-8")
    return title


@contextlib.contextmanager
def started(command: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a program, and ends it and its children at the end of the block."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, **environment}
    with subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=os.setpgrp, **pipes) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_each_program_is_on_a_page_once() -> None:
    assert sorted(block.title for block in all_blocks() if block.title in PROGRAMS) == sorted(PROGRAMS)


def test_a_scraper_keeps_the_limit_over_four_processes(strict: StrictServer, tmp_path: Path) -> None:
    service = strict.service_of(PARTNER)
    command = [*PYTHON, write("scraper.py", tmp_path), service.url, "40"]
    with started(command, tmp_path, TIDEGATE_STORE=f"file://{tmp_path}/limits") as scraper:
        printed, _ = scraper.communicate(timeout=LONG)
    lines = [re.fullmatch(r"process (\d+) has page (\d+): \d+ bytes", line) for line in printed.splitlines()]
    assert scraper.returncode == 0
    assert sorted(int(line[2]) for line in lines if line) == list(range(1, 41))
    assert len({line[1] for line in lines if line}) == 4
    assert service.counts()["refused"] == 0
    assert sorted(service.targets()) == sorted(f"/pages/{number}" for number in range(1, 41))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the client wants a newer Python")
def test_an_assistant_answers_while_its_batch_waits(tmp_path: Path) -> None:
    server = ModelServer()
    names = [f"report-{number}.txt" for number in range(10)]
    for name in names:
        (tmp_path / name).write_text("read 10, answer 5", encoding="utf-8")
    # Each call takes a hundred tokens for its answer and a few for its question.
    limits, store = "100 requests/hour; 1000 tokens/hour", f"file://{tmp_path}/limits"
    environment = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "k",
        "LLM_LIMITS": limits,
        "TIDEGATE_STORE": store,
    }

    def answers(length: int) -> int:
        return sum(call["answer"] == length for call in server.calls())

    command = [*PYTHON, write("assistant.py", tmp_path), *names]
    try:
        with started(command, tmp_path, **environment) as assistant:
            assert assistant.stdin is not None and assistant.stdout is not None
            # After six summaries, less is free than 30 % and the tokens of the next one.
            until(lambda: answers(5) >= 6)
            assistant.stdin.write("read 10, answer 2\nread 10, answer 3\n")
            assistant.stdin.flush()
            said = [assistant.stdout.readline() for _ in range(2)]
            assert [answers(length) for length in (2, 3, 5)] == [1, 1, 6]
            # As if the hour was over.
            with Limiter(store, timeout=20.0) as limiter:
                limiter.clear(Policy(limits, name="llm").paced(), f"out:{server.url}")
            rest, _ = assistant.communicate(timeout=LONG)
        assert said == ["answer: word word \n", "answer: word word word \n"]
        assert rest.splitlines() == [f"{name}: {'word ' * 5}" for name in names]
        assert assistant.returncode == 0
        assert [call["ended"] for call in server.calls()] == [True] * 12
    finally:
        server.close()


def test_a_queue_of_orders_keeps_the_limit(strict: StrictServer, redis_url: str, tmp_path: Path) -> None:
    service = strict.service_of(PARTNER)
    # A separate database, because pages leave jobs in the queue of the first.
    environment = {"REDIS_URL": f"{redis_url.removesuffix('/0')}/1", "PARTNER_URL": service.url}
    program = [*PYTHON, write("orders.py", tmp_path)]
    # With threads it is one process, which ends with the tests in any case.
    options = ["--pool", "threads", "--concurrency", "4", "--without-mingle", "--without-gossip"]
    celery = [sys.executable, "-m", "celery", "--app", "orders", "--workdir", str(tmp_path), "worker", *options]
    worker = spawn(celery, str(tmp_path / "log"), environment)
    try:
        subprocess.run(program, cwd=tmp_path, env={**os.environ, **environment}, check=True, timeout=LONG)
        until(lambda: len(service.targets()) >= 30)
    finally:
        kill(worker)
    counts = service.counts()
    assert (counts["admitted"], counts["refused"]) == (30, 0)
    assert sorted(service.targets()) == sorted(f"/orders/{number}" for number in range(1, 31))
