"""Runs the tests of a language with all oldest, or all newest, supported versions of the packages that they test.

    python3 scripts/versions.py node newest
    python3 scripts/versions.py python oldest
    python3 scripts/versions.py               # all four
    python3 scripts/versions.py table         # prints the table of docs/reference/compatibility.md

tests/versions/supported.json lists these versions, and the tests that run with them. Each run has a new environment
below .cache/versions, and installs the package there as its users do.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = json.loads((ROOT / "tests/versions/supported.json").read_text(encoding="utf-8"))
ENDS = ("oldest", "newest")


def packages(language: str, end: str) -> dict[str, str]:
    """The packages of all rows at one end, by their names."""
    return {name: version for row in SUPPORTED[language]["rows"] for name, version in row[end].items()}


def tests(language: str) -> list[str]:
    """The files with tests of these packages, each once."""
    return list(dict.fromkeys(name for row in SUPPORTED[language]["rows"] for name in row["tests"]))


def run(*words: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    print("+", *words, flush=True)
    subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, check=True)


def node(end: str, folder: Path) -> None:
    """Installs the packed package beside the packages, without a flag, and runs the tests with the Node of this end."""
    # The packages that the tests need beside them.
    wanted = ["structured-headers", "srvx", "reflect-metadata", "rxjs", "graphql", "mercurius", "ioredis", "ws", "zod"]
    wanted += ["@koa/router", "@anthropic-ai/sdk", "esbuild"]
    development = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    others = {name: development.get(name, "*") for name in wanted}
    run("npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(folder), cwd=ROOT)
    [tarball] = folder.glob("tidegate-*.tgz")
    dependencies = {**others, **packages("node", end), "node": SUPPORTED["node"]["runtimes"][end]}
    manifest = {"private": True, "dependencies": {**dependencies, "tidegate": f"file:{tarball.name}"}}
    (folder / "package.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    # No application has all oldest versions together, so they need not fit each other. The newest ones do.
    flags = ["--legacy-peer-deps"] if end == "oldest" else []
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *flags, cwd=folder)
    for name in ("node", "servers", "http", "vectors"):
        shutil.copytree(ROOT / "tests" / name, folder / "tests" / name)
    program = str(folder / "node_modules/.bin/node")
    run(program, "--version", cwd=folder)
    files = [f"tests/node/{name}" for name in tests("node")]
    run(program, "--test", "--test-reporter=dot", "--test-concurrency=2", *files, cwd=folder)


def find_python(version: str) -> str:
    """Finds the program of a version of Python, in PATH or in pyenv."""
    found = [
        shutil.which(f"python{version}"),
        *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")),
    ]
    for program in filter(None, found):
        # A program of pyenv in PATH may stand for a version that is not selected.
        if subprocess.run([program, "-m", "venv", "--help"], capture_output=True, check=False).returncode == 0:
            return program
    sys.exit(f"versions: no Python {version} was found. Install it, or run the other end alone")


def python(end: str, folder: Path) -> None:
    """Installs the wheel of this checkout and the packages, and runs the tests with the Python of this end."""
    wheels = sorted((ROOT / ".cache/wheels").glob("*.whl"))
    if not wheels:
        sys.exit("versions: no wheel was built in .cache/wheels. Run make test first")
    run(find_python(SUPPORTED["python"]["runtimes"][end]), "-m", "venv", str(folder / "venv"), cwd=ROOT)
    program = str(folder / "venv/bin/python")
    wanted = [f"{name}=={version}" for name, version in packages("python", end).items()]
    tools = ["pytest", "http_sfv", "httpx", "requests", "redis", "asgiref", "typing_extensions", "Flask-Limiter"]
    run(
        program,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *tools,
        *wanted,
        str(wheels[-1]),
        cwd=ROOT,
    )
    files = [f"tests/python/{name}" for name in tests("python")]
    run(program, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-W", "default", *files, cwd=ROOT)


def table() -> str:
    """The table of the page, in Markdown."""

    def version(row: dict[str, dict[str, str]], end: str) -> str:
        # Two major versions of one package are tested side by side, the older one under another name.
        return ", ".join(one.rpartition("@")[2] for name, one in reversed(row[end].items()) if name in _shown(row))

    lines = ["| | package | oldest | newest |", "|---|---|---|---|"]
    for language, title in (("node", "Node"), ("python", "Python")):
        runtimes = SUPPORTED[language]["runtimes"]
        lines.append(f"| {title} | | {runtimes['oldest']} | {runtimes['newest']} |")
        for row in SUPPORTED[language]["rows"]:
            package = next(iter(row["newest"])).partition("[")[0]
            lines.append(f"| {row['name']} | `{package}` | {version(row, 'oldest')} | {version(row, 'newest')} |")
    return "\n".join(lines)


def _shown(row: dict[str, dict[str, str]]) -> list[str]:
    """The packages of a row that are versions of its first one."""
    first, *others = row["newest"]
    return [first, *(name for name in others if row["newest"][name].startswith(f"npm:{first}@"))]


def main(words: list[str]) -> None:
    if words == ["table"]:
        print(table())
        return
    languages = [word for word in words if word not in ENDS] or ["node", "python"]
    for language in languages:
        for end in [word for word in words if word in ENDS] or ENDS:
            folder = ROOT / ".cache/versions" / f"{language}-{end}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            {"node": node, "python": python}[language](end, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
