"""Follows a page as its reader does, in a clean folder: writes its files, starts its servers, runs its commands, and
compares their output with the page.

    a block with a title      is a file of that name
    sh title="server"         is started, and serves until the page starts another one
    sh                        runs. Exported variables stay. Its output is compared with the block that follows:
    text, http                the text as it stands, or of a response the status, the shown fields and the body

Values that change from run to run are compared by their shape: moments, lengths of time, waits, and the path of the
folder. The test differs from a reader in two ways: it chooses the port, and its packages are installed already
(`scripts/packages/followed.py` installs them). If the tests run as root, servers and commands run as a user who may
read everything and write only to the folder. So a step that needs root fails, as it does for a reader.
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

from harness.ports import free_port
from paths import ROOT
from snippets import Block, blocks_of

PORTS = ("8000", "3000")
# The path of the reader's folder, as pages show it.
HOME = "/home/me/app"
# The user id of the reader, who has no account.
READER = 65534
INSTALLS = re.compile(r"(pip|npm) install |cargo (add|new|install) |cd \w+$|python -m venv ")
# cargo would compile for minutes. So the same text is compiled with the tests, into this folder.
COMPILED = ROOT / "target" / "x86_64-unknown-linux-gnu" / "debug" / "examples"

VOLATILE = [
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?"), "MOMENT"),
    (re.compile(r"\b\d{10}\b"), "MOMENT"),
    (re.compile(r"\b\d+h( \d\dm)?\b|\b\d+m( \d\ds)?\b|\b\d+(\.\d+)? [mµ]?s\b|\b\d+ seconds?\b"), "LENGTH"),
    (re.compile(r"\bt=\d+"), "t=SECONDS"),
    # `top` does not know a rate before its second reading.
    (re.compile(r"  (\?|\d+\.\d)$", re.MULTILINE), "  RATE"),
]


def as_reader() -> list[str]:
    """Returns the words that make a command run without root. There are none if another user runs the tests."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return []
    command = ["setpriv", f"--reuid={READER}", f"--regid={READER}", "--clear-groups", "--no-new-privs"]
    status = Path("/proc/self/status").read_text(encoding="ascii")
    # Python and the packages may be in a folder that only root may read. The reader keeps this right if root has it.
    may_read = int(re.findall(r"^CapEff:\s*(\w+)$", status, re.MULTILINE)[0], 16) & 1 << 2
    return [*command, "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"] if may_read else command


def shape(text: str) -> str:
    """Replaces everything that changes from run to run."""
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return "\n".join(re.sub(r"  +", "  ", line.rstrip()) for line in text.strip().splitlines())


class FollowedPage:
    """A page and the folder of its reader."""

    # The most seconds for a server to listen, and for a command to end.
    patience = 60

    def __init__(self, path: Path, folder: Path) -> None:
        self.blocks = blocks_of(path)
        self.folder = folder
        self._port = str(free_port())
        # The environment of the reader's terminal is that of the tests, where the packages are installed.
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
        """True if the packages that the page needs are installed already."""
        return True

    def _command(self, script: str) -> list[str]:
        """Returns the command that runs a script as the reader, who owns everything in the folder."""
        if self._reader:
            # A running server may remove files meanwhile.
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
            elif block.language in ("text", "http") and not block.title:
                assert printed is not None, f"{block}: no command before it prints this"
                compare = self._compare_response if block.language == "http" else self._compare_text
                compare(block, printed)
                compared, printed = compared + 1, None
            else:
                printed = None
                if block.title:
                    file = self.folder / block.title
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(self._here(block.code), encoding="utf-8")
        return compared

    def _here(self, code: str) -> str:
        """Puts the port of this run into a block."""
        for port in PORTS:
            code = re.sub(rf"\b{port}\b", self._port, code)
        return code

    def _commands(self, block: Block) -> str:
        lines = [line for line in block.code.splitlines() if not INSTALLS.match(line)]
        return self._here("\n".join(lines)).replace("cargo run", self._cargo_run())

    def _cargo_run(self) -> str:
        """Returns the compiled example that has the text of the page's main.rs."""
        shown = next((block.code for block in self.blocks if block.title == "src/main.rs"), "")
        same = (file for file in (ROOT / "examples").glob("*.rs") if file.read_text(encoding="utf-8") == shown)
        return str(COMPILED / next(same, Path("no example has the text of src/main.rs")).stem)

    def _start(self, block: Block) -> None:
        self._stop()
        log = self.folder / "server.log"
        command = self._command(self._commands(block))
        # In a new session, so that its workers end with it.
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
        """Waits until the workers of the last server have left the port, because the next server takes it."""
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
        ends = time.monotonic() + self.patience
        while True:
            ended = subprocess.run(
                self._command(before + script), cwd=self.folder, env=self._environment, capture_output=True, text=True,
                timeout=self.patience, check=False,
            )  # fmt: skip
            # A service may write the line of its log behind its answer.
            if ended.returncode != 1 or not commands.startswith("grep ") or time.monotonic() > ends:
                break
            time.sleep(0.05)
        # A denied command exits with 1, and some pages show just that.
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
