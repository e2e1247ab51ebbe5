"""The wheel in clean environments of the supported Pythons, and the examples there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paths import ROOT

PYTHONS = ["3.10", "3.12", "3.13"]
EXAMPLES = sorted((ROOT / "examples").glob("python_*.py"))


def interpreter(version: str) -> str | None:
    """The interpreter of a version, from PATH or pyenv."""
    candidates = [shutil.which(f"python{version}")]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(path / "bin" / "python") for path in sorted(root.glob(f"{version}.*"))]
    for candidate in candidates:
        # pyenv puts programs into PATH that fail for versions that are not selected.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel that `scripts/test.sh` built."""
    named = os.environ.get("TIDEGATE_WHEEL")
    if not named:
        pytest.skip("TIDEGATE_WHEEL names no wheel: `make test` builds one")
    return Path(named)


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_works_in_a_clean_environment(wheel: Path, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    inside = str(tmp_path / "venv" / "bin" / "python")
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([inside, *install], check=True)
    printed = subprocess.run(
        [inside, "-c", "import sys, tidegate; print(sys.version_info[:2], tidegate.__version__, tidegate.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    major, minor = version.split(".")
    assert printed.startswith(f"({major}, {minor})") and str(tmp_path) in printed
    command = [str(tmp_path / "venv" / "bin" / "tidegate"), "check", "fixed-window 5/minute", "alice", "--json"]
    for run, code in [(command, 0), ([*command, "--cost", "6"], 1), ([inside, "-m", "tidegate", "--version"], 0)]:
        ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
    assert EXAMPLES
    for example in plain_examples():
        subprocess.run([inside, str(example)], cwd=tmp_path, check=True, timeout=120)


def test_the_sdist_has_all_that_a_build_needs(wheel: Path, tmp_path: Path) -> None:
    """Builds outside the checkout, with the dependencies that were compiled for the wheel."""
    programs = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))
    make = [programs / "maturin", "sdist", "--out", tmp_path]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (sources,) = (tmp_path / "unpacked").iterdir()
    for path in sources.rglob("*"):
        # With the old timestamps cargo would use its build of the checkout.
        path.touch()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, sources], cwd=tmp_path, env=environ, check=True)
    (built,) = tmp_path.glob("*.whl")

    def files(path: Path) -> set[str]:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist())

    assert files(built) == files(wheel)


def plain_examples() -> list[Path]:
    """Returns the examples that need nothing but the package."""
    return [path for path in EXAMPLES if "Needs: nothing else" in path.read_text()]


@pytest.mark.parametrize("example", plain_examples(), ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
