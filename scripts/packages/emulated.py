"""Runs what `make dist` built for other machines: aarch64 under qemu's user emulation, and musl with musl's own loader.

    python scripts/packages/emulated.py dist

Interpreters come as packages into .cache/sysroot: Python for aarch64 and musl itself from Debian, Node for aarch64 and
Bun for musl from npm. No registry has a Python for musl. So its symbols are compared with those of musl's library and
of the module for glibc, and it runs in a container if docker is available. The output names all parts that did not run.
The release workflow runs them on machines that can.
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
import zipfile
from pathlib import Path

from elf import Library
from installed import EXAMPLES, ROOT, run

CACHE = ROOT / ".cache" / "sysroot"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = "trixie"
PYTHON = "python3.13"
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
NPM = {"x86_64": "x64", "aarch64": "arm64"}
SYSROOT = [
    f"{PYTHON}-minimal",
    f"lib{PYTHON}-minimal",
    f"lib{PYTHON}-stdlib",
    *("libc6", "libgcc-s1", "libstdc++6", "libatomic1", "libexpat1", "libffi8", "libssl3t64", "zlib1g"),
]
# Debian has no C++ library for musl, which Bun needs. Wheels carry one.
STDCPP_WHEEL = "greenlet==3.5.6"
BUN = "1.4.5"
NODE = "22"
ALPINE = "python:3.13-alpine"


class CannotBeHad(Exception):
    """Something is missing on this machine. The message names it, and often the command that installs it."""


class NotBuilt(Exception):
    """TARGETS left it out."""


def artefact(dist: Path, pattern: str) -> Path:
    found = sorted(dist.glob(pattern))
    if not found:
        raise NotBuilt(pattern)
    return found[0]


def attempt(*words: str | Path, folder: Path) -> None:
    ended = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["it printed nothing"]
        raise CannotBeHad(f"{words[0]} failed: {lines[-1]}")


def debian(cpu: str, packages: list[str], name: str) -> Path:
    """Unpacks packages of Debian for a kind of processor into a folder of the cache."""
    root = CACHE / name
    if (root / ".complete").exists():
        return root
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise CannotBeHad(f"{program} was not found, and packages of Debian cannot be unpacked")
    if not KEYS.exists():
        raise CannotBeHad(f"{KEYS} was not found; as root: apt-get install debian-archive-keyring")
    shutil.rmtree(root, ignore_errors=True)
    apt = root / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "debs"):
        (apt / folder).mkdir(parents=True)
    (apt / "state" / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] http://deb.debian.org/debian {SUITE} main\n")
    settings = {
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "state" / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Architecture": DEBIAN[cpu],
        "APT::Architectures::": DEBIAN[cpu],
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "_apt",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    attempt("apt-get", *options, "update", "-qq", folder=apt)
    attempt("apt-get", *options, "download", "-qq", *packages, folder=apt / "debs")
    # Debian's /lib is a link into /usr, which no package contains.
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    for package in sorted((apt / "debs").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacked:
            # Follows the link, which dpkg-deb --extract would replace.
            subprocess.run(
                ["tar", "-x", "--keep-directory-symlink", "-C", str(root)], stdin=unpacked.stdout, check=True
            )
    shutil.rmtree(apt)
    (root / ".complete").touch()
    return root


def from_npm(package: str, program: str) -> Path:
    """Returns the path of a program in a package of npm, which may be for another machine."""
    folder = CACHE / "npm" / package.replace("/", "-").replace("@", "-")
    name = package[: package.rindex("@")]
    path = folder / "node_modules" / name / program
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = ("install", "--force", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error")
        attempt("npm", *words, "--prefix", folder, package, folder=folder)
    return path


def emulator(cpu: str) -> list[str]:
    if platform.machine() == cpu:
        return []
    for name in (f"qemu-{cpu}", f"qemu-{cpu}-static"):
        if shutil.which(name):
            return [name]
    raise CannotBeHad(f"qemu-{cpu} was not found; as root: apt-get install qemu-user")


def stdcpp(cpu: str) -> Path:
    """A folder with the C++ library for musl."""
    folder = CACHE / f"stdcpp-{cpu}"
    if not (folder / "libstdc++.so.6").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        how = ("--no-deps", "--only-binary", ":all:", "--platform", f"musllinux_1_2_{cpu}", "--python-version", "3.12")
        attempt(sys.executable, "-m", "pip", "download", "--quiet", *how, "--dest", folder, STDCPP_WHEEL, folder=folder)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                if ".libs/" in name:
                    (folder / Path(name).name).write_bytes(wheel.read(name))
        (folder / "libstdc++.so.6").symlink_to(next(folder.glob("libstdc++-*")).name)
    return folder


def unpacked_wheel(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def unpacked_npm(dist: Path, names: list[str], folder: Path) -> Path:
    """Lays packages out as npm does, with the example beside them."""
    for name in names:
        own = folder / "node_modules" / name
        own.mkdir(parents=True)
        with tarfile.open(artefact(dist, f"npm/{name}-[0-9]*.tgz")) as archive:
            for member in archive:
                member.name = member.name.partition("/")[2]
                archive.extract(member, own)
    (folder / "package.json").write_text(json.dumps({"type": "module"}))
    shutil.copy(ROOT / "examples" / "node_script.mjs", folder)
    return folder / "node_script.mjs"


def glibc_wheel(dist: Path, cpu: str, folder: Path) -> str:
    emulate = emulator(cpu)
    root = debian(cpu, SYSROOT, f"glibc-{cpu}")
    site = unpacked_wheel(artefact(dist, f"python/*-abi3-manylinux*{cpu}.whl"), folder)
    python: list[str | Path] = [*emulate, "-L", root, root / "usr" / "bin" / PYTHON]
    for example in EXAMPLES:
        run(*python, ROOT / example, folder=folder, PYTHONPATH=str(site))
    told = run(*python, "-c", "import platform; print(platform.machine(), platform.python_version())", folder=folder)
    return f"{len(EXAMPLES)} examples ran with Python for {told.strip()}"


def glibc_npm(dist: Path, cpu: str, folder: Path) -> str:
    emulate = emulator(cpu)
    root = debian(cpu, SYSROOT, f"glibc-{cpu}")
    node: list[str | Path] = [*emulate, "-L", root, from_npm(f"node-linux-{NPM[cpu]}@{NODE}", "bin/node")]
    program = unpacked_npm(dist, ["tidegate", f"tidegate-linux-{NPM[cpu]}-gnu"], folder)
    run(*node, program, folder=folder)
    return f"{program.name} ran with Node {run(*node, '-p', 'process.version + process.arch', folder=folder).strip()}"


def musl(cpu: str) -> Path:
    return next(debian(cpu, ["musl"], f"musl-{cpu}").glob("usr/lib/*-linux-musl/libc.so"))


def musl_npm(dist: Path, cpu: str, folder: Path) -> str:
    program = unpacked_npm(dist, ["tidegate", f"tidegate-linux-{NPM[cpu]}-musl"], folder)
    bun = from_npm(f"@oven/bun-linux-{cpu.replace('x86_64', 'x64')}-musl@{BUN}", "bin/bun")
    loader: list[str | Path] = [*emulator(cpu), musl(cpu), "--library-path", stdcpp(cpu), bun]
    # The loader of the package would ask the ldd of this machine, so it gets the path of the addon.
    addon = next((folder / "node_modules" / f"tidegate-linux-{NPM[cpu]}-musl").glob("*.node"))
    run(*loader, program, folder=folder, NAPI_RS_NATIVE_LIBRARY_PATH=str(addon))
    return f"{program.name} ran with Bun {BUN} for musl"


def docker_serves() -> bool:
    """True if docker is installed and its daemon answers."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return asked.returncode == 0


def musl_wheel(dist: Path, cpu: str, folder: Path) -> str:
    site = unpacked_wheel(artefact(dist, f"python/*-abi3-musllinux*{cpu}.whl"), folder)
    asked = Library(site / "tidegate" / "_tidegate.abi3.so").undefined()
    missing = sorted(asked - Library(musl(cpu)).defined() - stable_abi(dist, cpu, folder))
    if missing:
        sys.exit(f"dist: the musl wheel for {cpu} asks for {', '.join(missing)}, which neither musl nor Python defines")
    if platform.machine() == cpu and docker_serves():
        volumes = (f"--volume={dist}:/dist:ro", f"--volume={ROOT / 'examples'}:/examples:ro")
        commands = ["pip install --quiet --no-index --find-links /dist/python tidegate"]
        commands += [f"python /{example}" for example in EXAMPLES]
        run("docker", "run", "--rm", *volumes, ALPINE, "sh", "-c", " && ".join(commands), folder=folder)
        return f"{len(EXAMPLES)} examples ran in {ALPINE}"
    return f"NOT RUN, for want of a Python for musl: its {len(asked)} symbols are those of musl and of the other wheel"


def stable_abi(dist: Path, cpu: str, folder: Path) -> set[str]:
    """The symbols that the wheel for glibc needs from Python. The Pythons here load it, so they define all of them."""
    site = unpacked_wheel(artefact(dist, f"python/*-abi3-manylinux*{cpu}.whl"), folder / "glibc")
    asked = Library(site / "tidegate" / "_tidegate.abi3.so").undefined()
    return {name for name in asked if name.startswith(("Py", "_Py"))}


def prepare() -> None:
    """Installs missing packages if that needs no password, as scripts/setup.sh does."""
    wanted = [] if KEYS.exists() else ["debian-archive-keyring"]
    if any(cpu != platform.machine() and shutil.which(f"qemu-{cpu}") is None for cpu in DEBIAN):
        wanted.append("qemu-user")
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if wanted and shutil.which("apt-get") and shutil.which((as_root or ["apt-get"])[0]):
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *wanted]):
            # If a package is still missing, the part that needs it reports it.
            subprocess.run([*as_root, "apt-get", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    prepare()
    here = platform.machine()
    parts = [(f"{what.__name__} {cpu}", what, cpu) for cpu in DEBIAN for what in (musl_npm, musl_wheel)]
    parts += [
        (f"{what.__name__} {cpu}", what, cpu) for cpu in DEBIAN if cpu != here for what in (glibc_wheel, glibc_npm)
    ]
    for title, what, cpu in parts:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"  {title}: {what(dist, cpu, Path(folder))}")
            except CannotBeHad as error:
                print(f"  {title}: NOT RUN: {error}. The release workflow runs it.")
            except NotBuilt as error:
                print(f"  {title}: not run, since it was not built: {error}")


if __name__ == "__main__":
    main()
