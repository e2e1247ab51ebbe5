"""Removes the temporary directory, however the harness ends."""

from __future__ import annotations

import os
import shutil
import signal
import time


class Guardian:
    """A forked process that outlives the harness by a moment.

    SIGKILL gives the harness no chance to tidy up. The guardian waits on a pipe whose other end only the harness
    holds: the kernel closes it on any kind of death, and then the directory goes. The servers themselves die by their
    parent-death signal.
    """

    def __init__(self, directory: str) -> None:
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writer)
            try:
                _watch(reader, directory)
            finally:
                os._exit(0)
        os.close(reader)

    def dismiss(self) -> None:
        """Lets the guardian remove the directory, and waits until it has."""
        os.close(self._writer)
        os.waitpid(self._pid, 0)


def _watch(reader: int, directory: str) -> None:
    # A session of its own: the Ctrl-C that ends the harness must not end its guardian first.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever reads the harness's output waits for its end; a copy held here would make them wait for us.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.read(reader, 1)
    # A server on its way out may still write into its folder, so one sweep is not always enough.
    for _ in range(100):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        time.sleep(0.05)
