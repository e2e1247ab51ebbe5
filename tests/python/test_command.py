"""The command `tidegate` of the package: its arguments, its exit codes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

COMMAND = [sys.executable, "-m", "tidegate"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "TIDEGATE_STORE"}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environ, check=False)


def test_arguments_output_and_exit_codes() -> None:
    allowed = run("check", "fixed-window 5/minute", "älice \U0001f600", "--json")
    assert (allowed.returncode, json.loads(allowed.stdout)["key"]) == (0, "älice \U0001f600")
    assert run("check", "0/minute", "alice").returncode == 1
    wrong = run("check", "20/minuet", "alice")
    assert wrong.returncode == 2
    assert "policy_invalid" in wrong.stderr


def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen([*COMMAND, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None and command.stderr is not None
        assert command.stdout.readline() == "\n"
        command.stdout.close()
        assert command.wait(timeout=60) == 0
        assert command.stderr.read() == ""


def test_an_interrupt_ends_it() -> None:
    with subprocess.Popen([*COMMAND, "demo"], stdout=subprocess.PIPE) as command:
        # The demo waits for seconds in the middle, so the signal arrives while it runs.
        assert command.stdout is not None
        assert command.stdout.readline() == b"\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(timeout=60) == -signal.SIGINT
