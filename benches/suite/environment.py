"""The machine, and the versions of the measured programs."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from .programs import ROOT

PYTHON = [
    "limits",
    "throttled-py",
    "pyrate-limiter",
    "redis",
    "hiredis",
    "Flask",
    "Flask-Limiter",
    "gunicorn",
    "fastapi",
    "slowapi",
    "uvicorn",
    "uvloop",
]
NODE = ["ioredis", "rate-limiter-flexible", "express", "express-rate-limit", "rate-limit-redis"]
RUST = ["governor", "redis"]


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def _output(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _node_version(package: str) -> str:
    manifest = json.loads((ROOT / "node_modules" / package / "package.json").read_text())
    return f"{package} {manifest['version']}"


def _rust_version(package: str) -> str:
    lock = (ROOT / "Cargo.lock").read_text()
    version = _first(f'^name = "{package}"\nversion = "([^"]*)"', lock)
    return f"{package} {version}"


def _versions(language: str, packages: list[str]) -> str:
    return f"{language}: {', '.join(packages)}"


def server_version(name: str = "") -> str:
    """Returns the version of the server, or `unknown` if it is not the server of that name, Redis or Valkey."""
    return _first(rf"{name}.* v=(\S+)", _output(os.environ.get("TIDEGATE_REDIS_SERVER", "redis-server"), "--version"))


def environment() -> dict[str, str]:
    memory = int(_first(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text())) / 1024**2
    rust = _first(r"rustc (\S+)", _output("rustc", "--version"))
    return {
        "Processor": _first(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text()),
        "Cores": str(len(os.sched_getaffinity(0))),
        "Memory": f"{memory:.0f} GiB",
        "System": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Redis": server_version(),
        "Python": _versions(platform.python_version(), [f"{name} {metadata.version(name)}" for name in PYTHON]),
        "Node": _versions(_output("node", "--version").lstrip("v"), [_node_version(name) for name in NODE]),
        "Rust": _versions(rust, [_rust_version(name) for name in RUST]),
    }


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"
