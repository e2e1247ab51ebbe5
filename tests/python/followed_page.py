"""Follows a page as its reader does, in a clean folder: writes the files that it shows, starts its servers, runs its
commands, and compares what they print with what the page says.

    a block with a title      is a file of that name
    sh title="server"         is started, and serves until the page starts another one
    sh                        runs; exported variables stay. What it prints is compared with the block that follows:
    text, http                a text as it stands there; of a response the status, the fields that are shown, the body

What differs from run to run is compared by its shape: moments, lengths of time, seconds to wait, and where the folder
is. Two things are of the test: the port, and that packages are installed already; `scripts/packages/followed.py`
installs them. Where the tests run as root, servers and commands run as a user who may read everything and write to the
folder alone: what needs root fails, as it does for a reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from paths import ROOT
from snippets import Block, blocks_of

PORTS = ("8000", "3000")
# The folder of the reader, where a page shows a path in it.
HOME = "/home/me/app"
# The reader: a user without an account.
READER = 65534
INSTALLS = re.compile(r"(pip|npm) install |cargo (add|new|install) |cd \w+$|python -m venv ")
# What cargo would compile for minutes is compiled with the tests, from the same text.
COMPILED = ROOT / "target" / "x86_64-unknown-linux-gnu" / "debug" / "examples"

VOLATILE = [
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?"), "MOMENT"),
    (re.compile(r"\b\d{10}\b"), "MOMENT"),
    (re.compile(r"\b\d+h( \d\dm)?\b|\b\d+m( \d\ds)?\b|\b\d+(\.\d+)? [mµ]?s\b|\b\d+ seconds?\b"), "LENGTH"),
    (re.compile(r"\bt=\d+"), "t=SECONDS"),
    # Of `top`: a rate is not known before its second reading.
    (re.compile(r"  (\?|\d+\.\d)$", re.MULTILINE), "  RATE"),
]


def as_reader() -> list[str]:
    """What runs a command as a user without root; nothing where the tests are run by one."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return []
    command = ["setpriv", f"--reuid={READER}", f"--regid={READER}", "--clear-groups", "--no-new-privs"]
    status = Path("/proc/self/status").read_text(encoding="ascii")
    # Python and the packages may be in a folder that root alone may read: that one right stays, where root has it.
    may_read = int(re.findall(r"^CapEff:\s*(\w+)$", status, re.MULTILINE)[0], 16) & 1 << 2
    return [*command, "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"] if may_read else command


def shape(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return "\n".join(re.sub(r"  +", "  ", line.rstrip()) for line in text.strip().splitlines())


class FollowedPage:
    """A page and the folder of its reader."""

    # The longest that a server may take to listen, and a command to end.
    patience = 60

    def __init__(self, path: Path, folder: Path) -> None:
        self.blocks = blocks_of(path)
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        # What the reader's terminal knows: the environment of the tests, whose packages are installed.
        search = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        self._environment = {**os.environ, "PATH": os.pathsep.join(search), "NO_COLOR": "1", "PORT": self._port}
        self._environment.pop("TIDEGATE_STORE", None)
        self._reader = as_reader() if self.may_be_followed_by_a_reader() else []
        if self._reader:
            self._environment["HOME"] = str(folder)
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> FollowedPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def may_be_followed_by_a_reader(self) -> bool:
        """Whether the packages that the page needs are there already."""
        return True

    def _command(self, script: str) -> list[str]:
        """Runs a script as the reader, to whom everything in the folder belongs."""
        if self._reader:
            # Files of a server that is running may go meanwhile.
            owns = ["chown", "--no-dereference", "--recursive", f"{READER}:{READER}", str(self.folder)]
            subprocess.run(owns, stderr=subprocess.DEVNULL, check=False)
        return [*self._reader, "bash", "-c", script]

    def follow(self) -> int:
        """Follows the page from top to bottom. Returns how many answers it compared."""
        compared, printed = 0, None
        for block in self.blocks:
            if block.language == "sh" and block.title == "server":
                self._start(block)
                printed = None
            elif block.language == "sh":
                printed = self._run_commands(block)
            elif block.language in ("text", "http"):
                assert printed is not None, f"{block}: no command before it prints this"
                compare = self._compare_response if block.language == "http" else self._compare_text
                compare(block, printed)
                compared, printed = compared + 1, None
            else:
                printed = None
                if block.title:
                    file = self.folder / block.title
                    file.parent.mkdir(exist_ok=True)
                    file.write_text(self._here(block.code), encoding="utf-8")
        return compared

    def _here(self, code: str) -> str:
        """A block with the port of this run."""
        for port in PORTS:
            code = re.sub(rf"\b{port}\b", self._port, code)
        return code

    def _commands(self, block: Block) -> str:
        lines = [line for line in block.code.splitlines() if not INSTALLS.match(line)]
        return self._here("\n".join(lines)).replace("cargo run", self._cargo_run())

    def _cargo_run(self) -> str:
        """The example that is compiled with the tests, and has the text of the page's main.rs."""
        shown = next((block.code for block in self.blocks if block.title == "src/main.rs"), "")
        same = (file for file in (ROOT / "examples").glob("*.rs") if file.read_text(encoding="utf-8") == shown)
        return str(COMPILED / next(same, Path("no example has the text of src/main.rs")).stem)

    def _start(self, block: Block) -> None:
        self._stop()
        log = self.folder / "server.log"
        command = self._command(self._commands(block))
        # A group of its own, so that its workers end with it.
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        ends = time.monotonic() + self.patience
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", int(self._port))) == 0:
                    return
            ended = self._server.poll() is not None or time.monotonic() > ends
            assert not ended, f"{block}: no server\n{log.read_text(encoding='utf-8')}"
            time.sleep(0.02)

    def _stop(self) -> None:
        if self._server is not None:
            group = self._server.pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
            try:
                self._server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(group, signal.SIGKILL)
                self._server.wait()
            self._server = None
            self._wait_for_the_port()

    def _wait_for_the_port(self) -> None:
        """The next server takes the port that the workers of this one may still have."""
        ends = time.monotonic() + self.patience
        while time.monotonic() < ends:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", int(self._port))) != 0:
                    return
            time.sleep(0.02)

    def _run_commands(self, block: Block) -> str | None:
        commands = self._commands(block)
        if not commands.strip():
            return None
        script = f"{commands}\nstatus=$?\nexport -p >exported\nexit $status\n"
        before = ". ./exported\n" if (self.folder / "exported").exists() else ""
        ended = subprocess.run(
            self._command(before + script), cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=self.patience, check=False,
        )  # fmt: skip
        # A denial of a command is 1, and what the page is about.
        log = self.folder / "server.log"
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        assert ended.returncode in (0, 1), f"{block}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}\n{said}"
        assert ended.returncode == 0 or "tidegate" in commands, f"{block}\n{ended.stdout}\n{ended.stderr}\n{said}"
        return ended.stdout.replace(str(self.folder), HOME)

    def _compare_text(self, block: Block, printed: str) -> None:
        assert shape(printed) == shape(self._here(block.code)), f"{block}\n{printed}"

    def _compare_response(self, block: Block, printed: str) -> None:
        head, _, body = self._here(block.code).partition("\n\n")
        said_head, _, said_body = printed.replace("\r\n", "\n").partition("\n\n")
        status, *fields = head.splitlines()
        said_status, *said_fields = said_head.splitlines()
        assert said_status.split()[1] == status.split()[1], f"{block}\n{printed}"
        said = {name.lower(): value for name, _, value in (field.partition(": ") for field in said_fields)}
        for field in fields:
            name, _, value = field.partition(": ")
            found = said.get(name.lower(), "absent")
            is_volatile = name in ("Retry-After", "grpc-retry-pushback-ms") and (found + value).isdigit()
            assert is_volatile or shape(found) == shape(value), f"{block}: {name}\n{printed}"
        if body.lstrip().startswith("{"):
            assert json.loads(shape(said_body)) == json.loads(shape(body)), f"{block}\n{printed}"
        else:
            assert shape(said_body) == shape(body), f"{block}\n{printed}"
