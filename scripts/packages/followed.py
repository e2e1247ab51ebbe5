"""Follows each page that begins with an installation as its reader does, who is not root, with the packages of
`make dist`. Each page gets a clean folder, a new environment for Python, and a new program for Rust.

python scripts/packages/followed.py dist [page …]
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from installed import ROOT, suffix

sys.path.insert(0, str(ROOT / "tests" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "servers"))

from followed_page import INSTALLS, FollowedPage
from snippets import Block, blocks_of, is_followed, pages

# Folders of this checkout with programs that a reader does not have.
OURS = tuple(str(ROOT / folder) for folder in (".cache/venv", ".cache/dist", ".cache/zig", "node_modules"))


class InstalledPage(FollowedPage):
    """A page that really runs its installations."""

    # A server may have to be compiled first.
    patience = 900

    def __init__(self, path: Path, folder: Path, dist: Path) -> None:
        super().__init__(path, folder)
        self._dist = dist
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        for name in ("BASH_ENV", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NODE_PATH"):
            self._environment.pop(name, None)
        search = [place for place in os.environ["PATH"].split(os.pathsep) if not place.startswith(OURS)]
        self._environment["PATH"] = os.pathsep.join([str(folder / "venv" / "bin"), *search])
        # One for all pages, and not that of the checkout, where the same name is another package.
        self._environment["CARGO_TARGET_DIR"] = str(folder.parent / "target")
        shutil.copy(ROOT / "rust-toolchain.toml", folder)
        self.seconds_to_install = 0.0

    def may_be_followed_by_a_reader(self) -> bool:
        """False for a page with cargo, which writes into the home folder of the user who has installed it."""
        return not any("cargo" in block.code for block in self.blocks if block.language == "sh")

    def _run_commands(self, block: Block) -> str | None:
        installs = [line for line in block.code.splitlines() if INSTALLS.match(line)]
        if installs:
            lines, began = "\n".join(["set -e", *map(self._with_package, installs)]), time.monotonic()
            subprocess.run(
                self._command(lines), cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL,
                timeout=self.patience, check=True,
            )  # fmt: skip
            self.seconds_to_install += time.monotonic() - began
        for name in re.findall(r"^cd (\w+)$", block.code, re.MULTILINE):
            self.folder /= name
        return super()._run_commands(block)

    def _cargo_run(self) -> str:
        return "cargo run --quiet"

    def _with_package(self, line: str) -> str:
        """A line that installs the package of `dist` in place of that of a registry."""
        if line == "cargo install tidegate-cli":
            # cargo would look for the crate `tidegate` in a registry. A wheel has the same command.
            line = 'pip install "tidegate"'
        if line.startswith("pip "):
            kind = "musllinux" if suffix().endswith("musl") else "manylinux"
            wheel = Path(self.one(f"python/tidegate-*-abi3-{kind}*{platform.machine()}.whl"))
            line = line.replace("pip install", "pip install --quiet --disable-pip-version-check")
            return re.sub(r'"tidegate(\[\w+\])?"', rf'"tidegate\1 @ {wheel.as_uri()}"', line)
        if line.startswith("npm "):
            packages = [self.one(f"npm/tidegate-{part}*.tgz") for part in ("[0-9]", f"{suffix()}-")]
            # With optional packages, as for a reader, since a compiler may be one.
            options = "--no-audit --no-fund --loglevel=error"
            return line.replace("npm install tidegate", f"npm install {options} {' '.join(packages)}")
        if line.startswith("cargo add tidegate"):
            with tarfile.open(self.one("crates/tidegate-[0-9]*.crate")) as archive:
                # The archive is our own, and the first releases of Python 3.10 have no filter.
                archive.extractall(self.folder)
            [crate] = self.folder.glob("tidegate-*")
            return line.replace("tidegate", f"tidegate --quiet --path {crate}", 1)
        return line

    def one(self, pattern: str) -> str:
        """The path of the one artefact that fits the pattern."""
        [found] = self._dist.glob(pattern)
        return str(found)


def main() -> None:
    dist, named = Path(sys.argv[1]).resolve(), sys.argv[2:]
    found = 0
    with tempfile.TemporaryDirectory() as temporary:
        # The reader, who owns only the folders inside, looks up programs there.
        Path(temporary).chmod(0o755)
        for path in filter(is_followed, pages()):
            begins = any(INSTALLS.match(line) for block in blocks_of(path) for line in block.code.splitlines())
            if not begins or (named and path.stem not in named):
                continue
            found += 1
            folder = Path(temporary) / path.stem
            folder.mkdir()
            page = InstalledPage(path, folder, dist)
            with page:
                began = time.monotonic()
                answers = page.follow()
                rest = time.monotonic() - began - page.seconds_to_install
                print(
                    f"  {path.relative_to(ROOT)}: {answers} answers are as the page says, after "
                    f"{page.seconds_to_install:.0f} s to install and {rest:.0f} s for the rest",
                    flush=True,
                )
    if not found:
        sys.exit("dist: no page was followed")


if __name__ == "__main__":
    main()
