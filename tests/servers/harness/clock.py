"""The wall clock of one server, which tests can set."""

from __future__ import annotations

import os
import struct
import subprocess

from .errors import HarnessError

SOURCE = os.path.join(os.path.dirname(__file__), "clock.c")


class Clock:
    """The system's clock plus an offset. A small preloaded library adds it, and is compiled when it is needed."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "ahead")
        self._ahead = 0.0
        library = os.path.join(directory, "clock.so")
        compiler = os.environ.get("CC", "cc")
        try:
            built = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE], capture_output=True)
        except OSError as failure:
            raise HarnessError(f"{compiler} cannot be run: {failure}; clocks that are set need a C compiler") from None
        if built.returncode != 0:
            raise HarnessError(f"{compiler} cannot build {SOURCE}:\n{built.stderr.decode(errors='replace')}")
        self.jump(0.0)
        self.environment = {"LD_PRELOAD": library, "TIDEGATE_CLOCK": self._path}

    @property
    def ahead(self) -> float:
        """Returns how far it is ahead, in seconds."""
        return self._ahead

    def jump(self, seconds: float) -> None:
        """Sets it further ahead, or back if the seconds are negative."""
        self._ahead += seconds
        # Written in place and at once, because the server has the file mapped.
        with open(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600), "wb", buffering=0) as file:
            file.write(struct.pack("=q", round(self._ahead * 1_000_000)))
