"""One version for the crates, the Python package, the npm package and the changelog."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(toml: str, name: str) -> str:
    """The lines of one TOML table. Python 3.8 reads no TOML, and our manifests keep to plain `key = value` lines."""
    found = re.search(rf"^\[{re.escape(name)}\]\n(.*?)(?=^\[|\Z)", toml, re.MULTILINE | re.DOTALL)
    if found is None:
        raise AssertionError(f"no [{name}]")
    return found.group(1)


def value(lines: str, key: str) -> str:
    found = re.search(rf'^{re.escape(key)} = "([^"]*)"', lines, re.MULTILINE)
    if found is None:
        raise AssertionError(f"no {key}")
    return found.group(1)


VERSION = value(table(read("Cargo.toml"), "workspace.package"), "version")


class Versions(unittest.TestCase):
    def test_every_crate_takes_the_workspaces(self) -> None:
        manifests = [ROOT / member / "Cargo.toml" for member in self.members()]
        self.assertTrue(manifests)
        for manifest in manifests:
            package = table(manifest.read_text(encoding="utf-8"), "package")
            self.assertRegex(package, r"(?m)^version\.workspace = true$", f"in {manifest}")

    def test_lock_file(self) -> None:
        names = [value(table(read(f"{member}/Cargo.toml"), "package"), "name") for member in self.members()]
        lock = read("Cargo.lock")
        for name in names:
            self.assertIn(f'name = "{name}"\nversion = "{VERSION}"\n', lock)

    def test_python_package(self) -> None:
        self.assertEqual(value(table(read("pyproject.toml"), "project"), "version"), VERSION)

    def test_npm_package(self) -> None:
        self.assertEqual(json.loads(read("package.json"))["version"], VERSION)

    def test_changelog_begins_with_it(self) -> None:
        entries = re.findall(r"^## \[(\d[^\]]*)\]", read("CHANGELOG.md"), re.MULTILINE)
        self.assertEqual(entries[:1], [VERSION])

    def test_pages_name_it(self) -> None:
        # A page with `0.1` would not find a candidate of 0.1.0.
        dependency = re.compile(r'^tidegate = \{ version = "([^"]*)"', re.MULTILINE)
        named = [
            (str(page.relative_to(ROOT)), version)
            for page in [ROOT / "core/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
            for version in dependency.findall(page.read_text(encoding="utf-8"))
        ]
        self.assertTrue(named)
        self.assertEqual([(page, version) for page, version in named if version != VERSION], [])

    def test_the_page_shows_the_supported_versions(self) -> None:
        table = subprocess.run(
            [sys.executable, str(ROOT / "scripts/versions.py"), "table"], capture_output=True, text=True, check=True
        ).stdout
        self.assertIn(f"\n{table}", read("docs/reference/compatibility.md"), "make it with scripts/versions.py table")

    def test_the_packages_admit_the_supported_versions(self) -> None:
        supported = json.loads(read("tests/versions/supported.json"))
        peers = json.loads(read("package.json"))["peerDependencies"]
        for row in supported["node"]["rows"]:
            for end in ("oldest", "newest"):
                for name, version in row[end].items():
                    if name in peers:
                        majors = re.findall(r"\^(\d+)", peers[name])
                        self.assertIn(version.partition(".")[0], majors, f"{name} {version} of {row['name']}")
        extras = re.findall(r'"([A-Za-z_-]+)>=([\d.]+)', table(read("pyproject.toml"), "project.optional-dependencies"))
        oldest = dict(extras)
        for row in supported["python"]["rows"]:
            name = next(iter(row["oldest"])).partition("[")[0].lower()
            version = row["oldest"][next(iter(row["oldest"]))]
            self.assertTrue(f"{version}.".startswith(f"{oldest[name]}."), f"{name} {version}, not {oldest[name]}")

    def members(self) -> list[str]:
        line = re.search(r"^members = \[(.*?)\]", read("Cargo.toml"), re.MULTILINE | re.DOTALL)
        assert line is not None
        return re.findall(r'"([^"]+)"', line.group(1))


if __name__ == "__main__":
    unittest.main()
