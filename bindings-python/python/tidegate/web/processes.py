"""Warns if usage is in memory and several processes serve one application."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from .._tidegate import AsyncLimiter, Limiter

log = logging.getLogger("tidegate.http")

# Servers with their own module, and its name for the number of their processes.
_COUNTS = (("uwsgi", "numproc"), ("mod_wsgi", "maximum_processes"))

_warned = False


def warn_of_memory(limiter: Limiter | AsyncLimiter) -> None:
    """Logs once that limits are not shared, in a process that is clearly one of several and keeps usage for itself."""
    if limiter._is_local:
        _warn()
        _warn_in_children()


@functools.cache
def _warn_in_children() -> None:
    # gunicorn with --preload makes the application before it forks its workers.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_warn)


def _warn() -> None:
    global _warned
    if _warned or (processes := _processes()) is None:
        return
    _warned = True
    log.warning(
        "this process is one of the %s, and with the store memory:// each of them counts for itself: together they "
        "admit every limit as often as there are processes. Processes of one machine share their limits in a file, "
        "store='%s', those of several machines on a Redis server, store='redis://…'",
        processes,
        _file(),
    )


def _file() -> str:
    """Returns the URL of a file that the user of this process can make."""
    try:
        folder = Path.cwd()
    except OSError:
        folder = Path("/")
    place = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    return (place / "limits").as_uri()


def _processes() -> str | None:
    """Returns the processes with which this one clearly serves, or None if it may be the only one."""
    if (workers := _gunicorn_workers()) > 1:
        return f"{workers} workers of gunicorn"
    # The arguments with which the worker was started.
    given: dict[str, Any] = getattr(multiprocessing.current_process(), "_kwargs", {})
    if (workers := _sanic_workers(given)) > 1:
        return f"{workers} workers of sanic"
    config = given.get("config")
    server = type(config).__module__.partition(".")[0]
    workers = getattr(config, "workers", 1) if server in ("uvicorn", "hypercorn") else 1
    if workers > 1 and not getattr(config, "should_reload", False):
        return f"{workers} workers of {server}"
    for module, name in _COUNTS:
        if (count := getattr(sys.modules.get(module), name, 1)) > 1:
            return f"{count} processes of {module}"
    # `instances` stays 1 if an application began with one instance and was scaled.
    if "pm_id" in os.environ and (_number("instances") > 1 or _number("NODE_APP_INSTANCE") > 0):
        return "processes of PM2"
    return None


def _gunicorn_workers() -> int:
    """Returns the number of gunicorn's workers if this process is one of them, else 0.

    The main thread of a worker never leaves the function that has forked it.
    """
    frame: FrameType | None = sys._getframe() if "gunicorn.arbiter" in sys.modules else None
    while frame is not None:
        if frame.f_code.co_name == "spawn_worker" and frame.f_globals.get("__name__") == "gunicorn.arbiter":
            return getattr(frame.f_locals.get("self"), "num_workers", 0)
        frame = frame.f_back
    return 0


def _sanic_workers(given: dict[str, Any]) -> int:
    """Returns the number of Sanic's workers if this process is one of them, else 0. They share a dict of states."""
    if not type(given.get("app_loader")).__module__.startswith("sanic."):
        return 0
    return sum("server" in state for state in given["worker_state"].values())


def _number(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0
