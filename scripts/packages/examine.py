"""Examines the folder of `make dist`: sizes against the bounds on standard input, and the contents of each archive.

    python scripts/packages/examine.py dist <bounds

A line of the bounds is a pattern of paths, the most KiB, and optionally the most KiB of the library inside.
"""

from __future__ import annotations

import fnmatch
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from elf import Library

# The libraries of the oldest systems: manylinux2014 and Node 20 on glibc, and musl's one library.
GLIBC = {"whl": (2, 17), "node": (2, 28)}
GLIBC_NEEDED = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
MUSL_NEEDED = {"libc.so"}
MACHINES = {"x86_64": "x86_64", "x64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive, without the top folder of a tar file."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                found[member.name.partition("/")[2]] = file.read()
    return found


def expected(name: str) -> list[str]:
    """Patterns of files that an archive must contain."""
    if name.endswith(".crate"):
        return ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE", "src/lib.rs"]
    if name.endswith(".whl"):
        info = "tidegate-*.dist-info"
        return [
            f"{info}/METADATA",
            f"{info}/licenses/LICENSE",
            f"{info}/sboms/*.cyclonedx.json",
            "tidegate/_tidegate.*",
            "tidegate/_tidegate.pyi",
            "tidegate/py.typed",
        ]
    if name.endswith(".tar.gz"):
        return ["PKG-INFO", "pyproject.toml", "Cargo.lock", "LICENSE", "core/src/lib.rs", "bindings-python/src/lib.rs"]
    if re.match(r"tidegate-\d", name):
        return ["package.json", "README.md", "LICENSE", "CHANGELOG.md", "bindings-node/dist/index.mjs"]
    return ["package.json", "README.md", "tidegate.*.node"]


def library_faults(name: str, path: Path) -> list[str]:
    """Returns the faults of a compiled library inside the package `name`."""
    library = Library(path)
    faults = []
    machine = next(machine for word, machine in MACHINES.items() if word in name)
    if library.machine != machine:
        faults.append(f"its library is for {library.machine}")
    if not library.stripped:
        faults.append("its library is not stripped")
    musl = "musl" in name
    strange = library.needed - (MUSL_NEEDED if musl else GLIBC_NEEDED)
    if strange:
        faults.append(f"its library needs {', '.join(sorted(strange))}, which not every system has")
    most = (0,) if musl else GLIBC["whl" if name.endswith(".whl") else "node"]
    if library.glibc > most:
        faults.append(f"its library needs glibc {'.'.join(map(str, library.glibc))}")
    return faults


def faults(path: Path, most: int | None) -> tuple[list[str], str]:
    """Returns the faults of an artefact, and its contents in a few words. Its library may have `most` KiB."""
    files = members(path)
    found = [f"it contains no {pattern}" for pattern in expected(path.name) if not fnmatch.filter(list(files), pattern)]
    words = [f"{len(files)} files", f"{sum(map(len, files.values())) / 1024:,.0f} KiB unpacked"]
    libraries = [name for name in files if name.endswith((".so", ".pyd", ".node"))]
    prebuilt = path.suffix == ".whl" or re.match(r"tidegate-[a-z]+\d*-(x64|arm64)", path.name)
    if prebuilt and len(libraries) != 1:
        found.append(f"it contains {len(libraries)} libraries, where one is expected")
    if not prebuilt and libraries:
        found.append(f"it contains {', '.join(libraries)}")
    strange = [name for name in files if re.search(r"(^|/)(target|node_modules|\.cache|__pycache__)/", name)]
    if strange:
        found.append(f"it contains {strange[0]} and {len(strange) - 1} more that are built or installed, not ours")
    for name in libraries if prebuilt else ():
        size = len(files[name]) / 1024
        words.append(f"{size:,.0f} KiB of them the library")
        if most is not None and size > most:
            found.append(f"its library has {size:,.0f} KiB, and scripts/dist.sh allows {most}")
        if files[name][:4] == b"\x7fELF":
            with tempfile.TemporaryDirectory() as folder:
                inside = Path(folder) / "library"
                inside.write_bytes(files[name])
                found += library_faults(path.name, inside)
                words.append(Library(inside).described())
    if path.suffix == ".whl":
        metadata = next(text.decode() for name, text in files.items() if name.endswith(".dist-info/METADATA"))
        for wanted in ("Project-URL: Source", "Requires-Python: >=3.10", "License-Expression: MIT"):
            if wanted not in metadata:
                found.append(f"its METADATA has no line {wanted!r}")
    if "package.json" in files and "LICENSE" in files:
        manifest = json.loads(files["package.json"])
        beside = {p.name for p in path.parent.iterdir()}
        for name, version in manifest["optionalDependencies"].items():
            if f"{name}-{version}.tgz" not in beside:
                found.append(f"it depends on {name} {version}, which is not beside it")
    return found, ", ".join(words)


def main() -> int:
    dist = Path(sys.argv[1])
    bounds = [(pattern, [int(most) for most in sizes]) for pattern, *sizes in filter(None, map(str.split, sys.stdin))]
    artefacts = sorted(path for folder in ("crates", "python", "npm") for path in dist.glob(f"{folder}/*"))
    if not artefacts:
        print(f"dist: {dist} contains no artefact; build it with make dist", file=sys.stderr)
        return 1
    wrong = 0
    for path in artefacts:
        name = path.relative_to(dist).as_posix()
        size = path.stat().st_size / 1024
        sizes = next((sizes for pattern, sizes in bounds if fnmatch.fnmatch(name, pattern)), [])
        most, library = [*sizes, None, None][:2]
        found, words = faults(path, library)
        if most is None:
            found.append("scripts/dist.sh has no bound for its size")
        elif size > most:
            found.append(f"it has {size:,.0f} KiB, and scripts/dist.sh allows {most}")
        print(f"{size:7,.0f} KiB of {most or 0:5}  {name}\n{'':23}{words}")
        for fault in found:
            print(f"{'':23}WRONG: {fault}")
        wrong += len(found)
    if wrong:
        print(f"dist: {wrong} faults, see the lines above that begin with WRONG", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
