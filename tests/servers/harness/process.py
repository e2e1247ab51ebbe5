"""Child processes that end with the harness."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18

# Loaded before any fork, because a child should not load libraries between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def spawn(
    command: list[str],
    log: str,
    environment: dict[str, str],
    user: pwd.struct_passwd | None = None,
    disk: tuple[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program as that user. The kernel kills it when the harness dies, even by SIGKILL (on Linux).

    `disk` is a folder and a size. A file system of that size is mounted there, which ends with the program.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        # A separate process group, so that Ctrl-C reaches the harness alone, which then ends its servers in order. No
        # separate session, because Linux shares processor time among sessions first. On a busy machine a server that
        # was alone in its session has got none for seconds.
        os.setpgid(0, 0)
        if disk is not None:
            _mount(*disk, user)
        if user is not None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        if _libc is None:
            return
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The harness has ended before the request above, so no signal would come.
            os._exit(1)

    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            preexec_fn=die_with_parent,
        )


def _mount(folder: str, size: str, user: pwd.struct_passwd | None) -> None:
    # In a list of mounts of its own, which ends with the last process that has it.
    owner = f",uid={user.pw_uid},gid={user.pw_gid}" if user is not None else ""
    mounts = [
        (b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        (b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={size},mode=0700{owner}".encode()),
    ]
    if _libc is None or _libc.unshare(CLONE_NEWNS) != 0 or any(_libc.mount(*mount) != 0 for mount in mounts):
        os._exit(1)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process, stopped or not, and waits until it is gone.

    It uses SIGKILL, because there is no data to save, and on SIGTERM Redis waits for replicas that may be stopped.
    """
    if process.poll() is None:
        process.kill()
    process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stops the process (SIGSTOP). Returns when it is stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def resume(process: subprocess.Popen[bytes]) -> None:
    """Continues a stopped process."""
    process.send_signal(signal.SIGCONT)
