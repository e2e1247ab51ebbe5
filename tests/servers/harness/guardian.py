"""Removes the temporary directory, however the harness ends."""

from __future__ import annotations

import os
import shutil
import signal
import time


class Guardian:
    """A forked process that lives slightly longer than the harness.

    A harness that is killed cannot clean up. The guardian reads from a pipe, and only the harness holds the other end.
    The kernel closes that end however the harness ends. Then the guardian removes the directory. The kernel kills the
    servers by their parent-death signal.
    """

    def __init__(self, directory: str) -> None:
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writer)
            try:
                _remove_at_the_end(reader, directory)
            finally:
                os._exit(0)
        os.close(reader)

    def dismiss(self) -> None:
        """Lets the guardian remove the directory, and waits until it has."""
        os.close(self._writer)
        os.waitpid(self._pid, 0)


def _remove_at_the_end(reader: int, directory: str) -> None:
    # A separate session, so that the Ctrl-C that ends the harness does not end the guardian first.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Readers of the harness's output wait for its end. A copy of it here would make them wait for the guardian.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.read(reader, 1)
    # A server that is ending may still write into its folder, so one attempt does not always suffice.
    for _ in range(100):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return
        time.sleep(0.05)
