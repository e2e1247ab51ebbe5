"""The workflows call only the Makefile, and everything that they and Dependabot name is there."""

from __future__ import annotations

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def listed(text: str, key: str) -> list[str]:
    """Returns the values of a list that stands in one line."""
    return [value.strip(" '\"") for line in re.findall(rf"{key}: \[(.*)\]", text) for value in line.split(",")]


def jobs(text: str) -> dict[str, str]:
    """Returns the lines of each job, by its name."""
    parts = re.split(r"(?m)^  ([a-z-]+):\n", text.partition("\njobs:\n")[2])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


class Workflows(unittest.TestCase):
    def setUp(self) -> None:
        self.targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))

    def test_there_are_five(self) -> None:
        self.assertEqual([path.stem for path in WORKFLOWS], ["check", "docs", "nightly", "release", "test"])

    def test_every_command_is_a_target_of_the_makefile(self) -> None:
        commands: list[str] = []
        for path in WORKFLOWS:
            for job, lines in jobs(path.read_text(encoding="utf-8")).items():
                for command in re.findall(r"^ *(?:- )?run: *(.*)$", lines, re.MULTILINE):
                    # `defaults` has a table of this name.
                    if command == "":
                        self.assertRegex(lines, r"defaults:\n +run:\n +shell: bash\n", f"{path.name}, {job}")
                        continue
                    words = command.replace("${{ matrix.command }}", "${command}").split()
                    self.assertEqual(words[0], "make", f"{path.name}, {job}: {command}")
                    named = listed(lines, "command") if words[1] == "${command}" else [words[1]]
                    self.assertTrue(named, f"{path.name}, {job}: {command}")
                    commands += named
        self.assertGreater(len(commands), 15)
        self.assertEqual(sorted(set(commands) - self.targets), [])

    def test_every_job_ends_and_may_do_little(self) -> None:
        for path in WORKFLOWS:
            text = path.read_text(encoding="utf-8")
            # This holds for the whole workflow. A job that needs more than reading has its own permissions.
            self.assertRegex(text, r"(?m)^permissions:\n  contents: read\n\n", path.name)
            self.assertRegex(text, r"(?m)^concurrency:\n  group: ", path.name)
            self.assertTrue(jobs(text), path.name)
            for job, lines in jobs(text).items():
                if "uses: ./" not in lines:
                    self.assertRegex(lines, r"timeout-minutes: \d+\n", f"{path.name}, {job}")
            self.assertNotIn("secrets.", text, f"{path.name}: registries are published to without a stored token")

    def test_actions_are_pinned_by_commit(self) -> None:
        for path in WORKFLOWS:
            for action in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
                self.assertRegex(action, r"^(\./.*|[\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+)$", path.name)

    def test_a_release_is_published_behind_all_tests_and_tried_packages(self) -> None:
        release = jobs(read(".github/workflows/release.yml"))
        self.assertIn("uses: ./.github/workflows/test.yml", release["test"])
        self.assertIn("run: make test-all", release["test-all"])
        publishing = [job for job, lines in release.items() if "environment: " in lines]
        self.assertEqual(publishing, ["crates", "pypi", "npm"])
        for job in publishing:
            self.assertEqual(listed(release[job], "needs"), ["test", "test-all", "try", "pack"], job)

    def test_the_promised_versions_are_tested(self) -> None:
        text = read(".github/workflows/test.yml")
        oldest = re.search(r'requires-python = ">=3\.(\d+)"', read("pyproject.toml"))
        assert oldest is not None
        self.assertEqual(listed(text, "python"), [f"3.{minor}" for minor in range(int(oldest.group(1)), 15)])
        self.assertEqual(json.loads(read("package.json"))["engines"]["node"], f">={listed(text, 'node')[0]}")
        for server in [*listed(text, "server"), *re.findall(r"server: ([a-z].*)", text)]:
            self.assertRegex(server, r"^(redis-\d+(\.\d+)?|valkey(-\d+)?)$")

    def test_dependabot_looks_where_dependencies_are(self) -> None:
        text = read(".github/dependabot.yml")
        manifests = {
            "cargo": "Cargo.toml",
            "npm": "package.json",
            "pip": "requirements.txt",
            "github-actions": ".github/workflows/check.yml",
        }
        parts = text.split("  - package-ecosystem: ")[1:]
        self.assertEqual({part.split()[0] for part in parts}, set(manifests))
        for part in parts:
            folders = listed(part, "directories") or re.findall(r"directory: (.*)", part)
            self.assertTrue(folders)
            for folder in folders:
                self.assertTrue((ROOT / folder.lstrip("/") / manifests[part.split()[0]]).is_file(), folder)


class Makefile(unittest.TestCase):
    def test_every_target_is_phony_and_every_script_exists(self) -> None:
        text = read("Makefile")
        phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)).split())
        targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
        self.assertEqual(sorted(targets - phony), [])
        for script in re.findall(r"@(?:.* )?(scripts/[\w/]+\.sh)", text):
            self.assertTrue((ROOT / script).is_file(), script)


if __name__ == "__main__":
    unittest.main()
