"""A process publishes its denials if `TIDEGATE_TOP` asks for it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

DENIES = """
import os, sys, time
from tidegate import Limiter
limiter = Limiter(policies={"login": "fixed-window 1/hour"})
for _ in range(3):
    limiter.check("login", "alice")
limiter.check("2/hour", "x" * 600, 3)
"""
FORKS = """
child = os.fork()
if child == 0:
    limiter.check("login", "alice")
    limiter.check("login", "bob")
    limiter.check("login", "bob")
os.write(1, b"ready\\n")
sys.stdin.read()
if child:
    os.wait()
"""


def published(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_each_process_publishes_its_own_denials(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DENIES + FORKS],
        env={**os.environ, "TIDEGATE_TOP": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "ready\n"]
        wanted = {(process.pid, "alice", 2), ("child", "alice", 1), ("child", "bob", 1)}
        found: set[tuple[Any, str, int]] = set()
        files: list[dict[str, Any]] = []
        # Each process writes its file once a second, perhaps while it still makes its checks. So this reads until the
        # files are complete. The time limit of the suite ends the loop.
        while found != wanted or not any(file["denials_of_long_keys"] for file in files):
            files = published(tmp_path)
            found = {
                (file["process"] if file["process"] == process.pid else "child", denied["key"], denied["denials"])
                for file in files
                for denied in file["denied"]
            }
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.json")} == {0o600}
        (parent,) = (file for file in files if file["process"] == process.pid)
        counted = {"allowed": 1, "denied": 2, "shadow_denied": 0}
        assert parent["policies"]["login"] == {"notation": "fixed-window 1/hour", **counted}
        assert (parent["denials_of_long_keys"], parent["store"], parent["prefix"]) == (1, "memory://", "tg")
        process.stdin.close()
        assert process.wait() == 0


def test_nothing_is_published_without_being_asked(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TIDEGATE_TOP"}
    subprocess.run([sys.executable, "-c", DENIES], env=environment, cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    # A file, because Tidegate would make a folder that is missing.
    file = tmp_path / "file\x1b[2J"
    file.touch()
    # A separate thread logs warnings, so the script waits for the line.
    script = f"""
import logging
said = []
class Handler(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("tidegate").addHandler(Handler())
{DENIES}
while not said:
    time.sleep(0.01)
(sentence,) = said
# Nothing of its name acts on a terminal.
assert "TIDEGATE_TOP" in sentence and sys.argv[1].replace("\\x1b", "\\\\u{{1b}}") in sentence, sentence
"""
    run = [sys.executable, "-c", script, str(file)]
    subprocess.run(run, env={**os.environ, "TIDEGATE_TOP": str(file)}, check=True, timeout=60)


def test_a_closed_limiter_leaves_no_file(tmp_path: Path) -> None:
    script = DENIES + "limiter.close()\nwhile os.listdir(sys.argv[1]): time.sleep(0.05)\n"
    run = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(run, env={**os.environ, "TIDEGATE_TOP": str(tmp_path)}, check=True, timeout=60)
