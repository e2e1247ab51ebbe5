"""Installs every artefact of `make dist` that fits this machine into a clean environment, and runs an example there.

python scripts/packages/installed.py dist
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
EXAMPLES = ["examples/python_script.py", "examples/python_time_travel.py"]
SYSTEMS = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}
CRATE_EXAMPLE = """
fn main() -> Result<(), tidegate::Error> {
    let limiter = tidegate::Limiter::builder().policy("login", "2/minute")?.build()?;
    for admitted in [true, true, false] {
        assert_eq!(limiter.check("login", "alice")?.allowed(), admitted);
    }
    println!("two calls are admitted, the third is refused");
    Ok(())
}
"""


def run(*words: str | Path, folder: Path, **environ: str) -> str:
    """Runs a program and returns its output. If it fails, this program ends and prints that output."""
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ended.returncode != 0:
        sys.exit(f"dist: {' '.join(map(str, words))} ended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def pythons() -> list[str]:
    """An interpreter of each supported version that this machine has, including that of this program."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        candidates = [shutil.which(f"python{version}"), *(str(p) for p in root.glob(f"{version}.*/bin/python"))]
        for candidate in filter(None, candidates):
            # pyenv puts programs into PATH that fail for versions that are not selected.
            if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
                found.setdefault(version, candidate)
    return [found[version] for version in sorted(found, key=lambda v: int(v.split(".")[1]))]


def in_venv(python: str, folder: Path, *install: str | Path, **environ: str) -> None:
    """Installs into a new environment and runs the examples there."""
    run(python, "-m", "venv", folder / "venv", folder=folder)
    inside = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install, folder=folder, **environ)
    for example in EXAMPLES:
        run(inside, ROOT / example, folder=folder, PYTHONIOENCODING="utf-8")
    told = run(inside, "-c", "import sys, tidegate; print(sys.version.split()[0], tidegate.__file__)", folder=folder)
    version, path = told.split(maxsplit=1)
    if not Path(path.strip()).resolve().is_relative_to(folder.resolve()):
        sys.exit(f"dist: Python {version} took the package from {path.strip()}, not from the environment {folder}")
    print(f"  Python {version}: installed, {len(EXAMPLES)} examples ran")


def wheels(dist: Path, folder: Path) -> None:
    print("the wheel, without a registry")
    for number, python in enumerate(pythons()):
        inside = folder / f"wheel-{number}"
        inside.mkdir()
        words = ("--no-index", "--only-binary", ":all:", "--find-links", dist / "python", "tidegate")
        in_venv(python, inside, *words)


def sdist(dist: Path, folder: Path) -> None:
    found = list(dist.glob("python/*.tar.gz"))
    if not found:
        return
    print("the sdist, which pip builds")
    inside = folder / "sdist"
    inside.mkdir()
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    in_venv(sys.executable, inside, found[0], CARGO_TARGET_DIR=target)


def crate(dist: Path, folder: Path) -> None:
    found = list(dist.glob("crates/tidegate-[0-9]*.crate"))
    if not found:
        return
    print("the crate, as the dependency of a program")
    inside = folder / "program"
    (inside / "src").mkdir(parents=True)
    with tarfile.open(found[0]) as archive:
        # The archive is our own, and the first releases of Python 3.10 have no filter.
        archive.extractall(inside)
    name = found[0].name.removesuffix(".crate")
    (inside / "Cargo.toml").write_text(
        "[package]\nname = 'program'\nversion = '0.0.0'\nedition = '2024'\n[workspace]\n"
        f"[dependencies]\ntidegate = {{ path = '{name}' }}\n"
    )
    (inside / "src" / "main.rs").write_text(CRATE_EXAMPLE)
    # The tested versions, because the archive is not at fault if a newer one in a registry fails.
    shutil.copy(inside / name / "Cargo.lock", inside / "Cargo.lock")
    shutil.copy(ROOT / "rust-toolchain.toml", inside)
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    print(f"  {run('cargo', 'run', '--quiet', folder=inside, CARGO_TARGET_DIR=target).strip()}")


def suffix() -> str:
    """The end of the names of npm packages for this machine."""
    system = SYSTEMS[platform.system()]
    cpu = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine().lower()]
    kind = {"linux": "-gnu" if platform.libc_ver()[0] == "glibc" else "-musl", "darwin": "", "win32": "-msvc"}[system]
    return f"{system}-{cpu}{kind}"


def npm(dist: Path, folder: Path) -> None:
    name = suffix()
    main = list(dist.glob("npm/tidegate-[0-9]*.tgz"))
    own = list(dist.glob(f"npm/tidegate-{name}-*.tgz"))
    addon = dist / "addons" / f"tidegate.{name}.node"
    if main and own:
        print("the npm packages, without a registry")
        inside = folder / "npm"
        inside.mkdir()
        packages = {"tidegate": main[0], f"tidegate-{name}": own[0]}
        manifest = {"private": True, "dependencies": {key: f"file:{path}" for key, path in packages.items()}}
        (inside / "package.json").write_text(json.dumps(manifest))
        words = (
            "install",
            "--offline",
            "--omit=optional",
            "--omit=peer",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        )
        run(shutil.which("npm") or "npm", *words, folder=inside)
        program, environ = inside / "node_script.mjs", {}
        shutil.copy(ROOT / "examples" / "node_script.mjs", program)
    elif addon.exists():
        print("the addon, with the modules of this checkout")
        run(shutil.which("npm") or "npm", "run", "--silent", "build:lib", folder=ROOT)
        program, environ = ROOT / "examples" / "node_script.mjs", {"NAPI_RS_NATIVE_LIBRARY_PATH": str(addon)}
    else:
        print(f"no npm package for {name}")
        return
    run("node", program, folder=program.parent, **environ)
    print(f"  Node {run('node', '--version', folder=folder).strip()}: {program.name} ran")


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        crate(dist, folder)
        wheels(dist, folder)
        sdist(dist, folder)
        npm(dist, folder)


if __name__ == "__main__":
    main()
