"""The contents of `make dist`: the crate contains everything that it includes, and faulty archives are found."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "packages"))

import examine  # noqa: E402

CRATE = {"Cargo.toml": b"", "Cargo.lock": b"", "README.md": b"", "LICENSE": b"", "src/lib.rs": b""}


class Crates(unittest.TestCase):
    def test_a_crate_includes_only_its_own_files(self) -> None:
        found = 0
        for source in (ROOT / "core" / "src").rglob("*.rs"):
            for name in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text(encoding="utf-8")):
                found += 1
                path = (source.parent / name).absolute().resolve()
                self.assertTrue(path.is_relative_to(ROOT / "core"), f"{source.name} includes {name}")
                self.assertTrue(path.is_file(), f"{source.name} includes {name}")
        self.assertGreater(found, 1)

    def test_it_has_its_readme_and_its_license(self) -> None:
        manifest = (ROOT / "core" / "Cargo.toml").read_text(encoding="utf-8")
        self.assertIn('readme = "README.md"\n', manifest)
        for crate in ("core", "simulate", "cli"):
            with self.subTest(crate):
                self.assertEqual((ROOT / crate / "LICENSE").read_bytes(), (ROOT / "LICENSE").read_bytes())


class Examined(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dist = Path(temporary.name)
        (self.dist / "crates").mkdir()

    def crate(self, files: dict[str, bytes]) -> None:
        with tarfile.open(self.dist / "crates" / "tidegate-1.0.0.crate", "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(f"tidegate-1.0.0/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    def examined(self, bounds: str = "crates/tidegate-[0-9]*.crate 10") -> tuple[int, str]:
        printed = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["examine.py", str(self.dist)]),
            mock.patch.object(sys, "stdin", io.StringIO(bounds)),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            return examine.main(), printed.getvalue()

    def test_a_whole_one_is_accepted(self) -> None:
        self.crate(CRATE)
        self.assertEqual(self.examined()[0], 0, self.examined()[1])

    def test_nothing_is_an_error(self) -> None:
        code, told = self.examined()
        self.assertEqual(code, 1)
        self.assertIn("contains no artefact", told)

    def test_a_missing_license_is_named(self) -> None:
        self.crate({name: content for name, content in CRATE.items() if name != "LICENSE"})
        code, told = self.examined()
        self.assertEqual(code, 1)
        self.assertIn("WRONG: it contains no LICENSE", told)

    def test_a_size_over_its_bound_is_named(self) -> None:
        self.crate(CRATE)
        code, told = self.examined("crates/tidegate-[0-9]*.crate 0")
        self.assertEqual(code, 1)
        self.assertIn("scripts/dist.sh allows 0", told)

    def test_a_library_over_its_bound_is_named(self) -> None:
        (self.dist / "python").mkdir()
        with zipfile.ZipFile(self.dist / "python" / "tidegate-1.0.0-win_amd64.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr("tidegate-1.0.0.dist-info/METADATA", "")
            wheel.writestr("tidegate/_tidegate.pyd", bytes(8001 * 1024))
        self.assertIn(
            "its library has 8,001 KiB, and scripts/dist.sh allows 8000", self.examined("\npython/* 99 8000\n")[1]
        )
        self.assertNotIn("its library", self.examined("python/* 99 8001")[1])

    def test_an_artefact_without_a_bound_is_named(self) -> None:
        self.crate(CRATE)
        code, told = self.examined("python/* 10")
        self.assertEqual(code, 1)
        self.assertIn("has no bound", told)

    def test_a_compiled_library_in_a_source_archive_is_named(self) -> None:
        self.crate({**CRATE, "src/tidegate.so": b"\x7fELF"})
        code, told = self.examined()
        self.assertEqual(code, 1)
        self.assertIn("it contains src/tidegate.so", told)


if __name__ == "__main__":
    unittest.main()
