"""The requirements of a compiled library for Linux, from the output of `readelf` (binutils)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path


class Library:
    """A shared library: its machine, the libraries and the newest glibc that it needs, and whether it is stripped."""

    def __init__(self, path: Path) -> None:
        if shutil.which("readelf") is None:
            sys.exit("dist: readelf was not found, which examines libraries. Install binutils.")
        told = subprocess.run(
            ["readelf", "--wide", "--file-header", "--section-headers", "--dynamic", "--version-info", str(path)],
            capture_output=True,
            text=True,
            check=True,
            env={"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"},
        ).stdout
        self.path = path
        machine = re.search(r"Machine: +(.*)", told)
        self.machine = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}.get(
            machine.group(1).strip() if machine else "", "an unknown machine"
        )
        self.needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", told))
        self.stripped = re.search(r" \.(symtab|debug_\w+) ", told) is None
        versions = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", told)
        self.glibc = max((tuple(map(int, version.split("."))) for version in versions), default=(0,))

    def undefined(self) -> set[str]:
        """The symbols that other libraries or the interpreter must define."""
        return {name for kind, name in self._symbols() if kind == "UND"}

    def defined(self) -> set[str]:
        return {name for kind, name in self._symbols() if kind != "UND"}

    def _symbols(self) -> list[tuple[str, str]]:
        told = subprocess.run(
            ["readelf", "--wide", "--dyn-syms", str(self.path)], capture_output=True, text=True, check=True
        ).stdout
        lines = [line.split() for line in told.splitlines()]
        # A weak symbol may be missing.
        return [
            (line[6], line[7].partition("@")[0])
            for line in lines
            if len(line) > 7 and line[0].endswith(":") and not (line[4] == "WEAK" and line[6] == "UND")
        ]

    def described(self) -> str:
        libc = "musl" if self.glibc == (0,) else f"glibc {'.'.join(map(str, self.glibc))} or newer"
        return f"{self.machine}, {libc}, {'stripped' if self.stripped else 'not stripped'}"
