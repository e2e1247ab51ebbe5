"""The installations of the set-up, their order, and its messages when one fails."""

from __future__ import annotations

import unittest

from machine import MANAGER, PINNED, RUSTUP, Setup


class Installed(Setup):
    def test_the_demo_as_root(self) -> None:
        self.machine.offers_rust()
        cache = self.machine.checkout / ".cache"
        made = self.installed("demo")
        self.assertEqual(
            [call.split(" -o ")[0].split(" --proto")[0] for call in made],
            [
                "apt-get install -y -qq --no-install-recommends",
                "curl",
                f"rustup-init RUSTUP_HOME={cache}/rustup CARGO_HOME={cache}/cargo -y --quiet --no-modify-path "
                f"--profile minimal --default-toolchain {PINNED} --component rustfmt --component clippy",
            ],
        )
        self.assertTrue(made[0].endswith(" gcc libc6-dev curl"), made[0])
        self.assertEqual(list(self.machine.home.glob(".*")), [], "nothing is written at home")
        self.assertEqual(self.machine.setup("demo", TIDEGATE_SETUP="no"), (0, ""))

    def test_the_tests_as_root(self) -> None:
        self.machine.offers_rust()
        made = self.installed()
        self.assertEqual(
            [call.split(maxsplit=1)[0] for call in made],
            ["apt-get", "curl", "rustup-init", "python3", "python", "python", "npm"],
        )
        self.assertTrue(
            made[0].endswith(" gcc libc6-dev curl python3 python3-venv openssl redis-server postgresql pgbouncer"),
            made[0],
        )
        self.assertEqual(made[3], "python3 -m venv .cache/venv")
        self.assertIn("--requirement tests/python/requirements.txt", made[4])
        self.assertIn("--require-hashes", made[5])
        self.assertEqual(self.machine.setup(TIDEGATE_SETUP="no")[0], 0)

    def test_only_what_is_missing(self) -> None:
        self.machine.has_all()
        self.machine.lacks("openssl")
        made = self.installed()
        self.assertEqual([call.split()[-1] for call in made], ["openssl"])

    def test_package_lists_are_fetched_when_the_first_attempt_fails(self) -> None:
        self.machine.has_all()
        self.machine.lacks("openssl")
        first = f'if [ ! -e "{self.machine.home}/lists" ] && [ "$1" = install ]; then call "$@"; exit 100; fi\n'
        first += f'if [ "$1" = update ]; then : >"{self.machine.home}/lists"; fi\n'
        self.machine.program(self.machine.bin, "apt-get", first + MANAGER)
        self.assertEqual([call.split()[1] for call in self.installed()], ["install", "update", "install"])

    def test_with_sudo_that_asks_for_nothing(self) -> None:
        self.machine.is_user(
            "somewhere", sudo='[ "$1" = -n ] || exit 1\nshift\n[ "$1" != true ] || exit 0\ncall "$@"\nexec "$@"'
        )
        self.machine.program(self.machine.bin, "true", "")
        self.machine.has_all()
        self.machine.lacks("openssl")
        self.assertEqual([call.split()[0] for call in self.installed()], ["sudo", "apt-get"])

    def test_with_dnf(self) -> None:
        self.machine.is_system("Linux", "dnf")
        self.machine.offers_rust()
        made = self.installed()
        self.assertEqual(
            made[0], "dnf install -y -q gcc curl python3 openssl /usr/bin/redis-server postgresql-server pgbouncer"
        )

    def test_with_brew(self) -> None:
        self.machine.is_system("Darwin", "brew")
        self.machine.is_user("somewhere")
        self.machine.program(self.machine.bin, "xcode-select", "")
        self.machine.has_all()
        self.machine.lacks("redis-server", "openssl")
        self.machine.package("redis", **{"redis-server": "echo Redis server v=8.0.0"})
        made = [call for call in self.installed() if "--prefix" not in call]
        self.assertEqual(made, ["brew install --quiet openssl redis"])

    def test_one_package_that_is_not_there_stops_no_other(self) -> None:
        self.machine.has_all()
        self.machine.lacks("openssl", "redis-server")
        self.machine.offers_redis()
        refuses = 'case "$*" in *redis-server*) call "$@"; exit 100 ;; esac\n'
        self.machine.program(self.machine.bin, "apt-get", refuses + MANAGER)
        made = self.installed()
        self.assertIn("openssl", [call.split()[-1] for call in made])
        self.assertIn("make", [call.split()[0] for call in made], "Redis is built from its source then")

    def test_redis_is_built_when_that_of_the_system_is_too_old(self) -> None:
        self.machine.has_all()
        self.machine.lacks("redis-server")
        self.machine.package("redis-server", **{"redis-server": "echo Redis server v=5.0.7 sha=0"})
        self.machine.offers_redis()
        made = self.installed()
        self.assertEqual([call.split()[0] for call in made], ["apt-get", "curl", "make"])
        self.assertIn(f"BUILD_TLS=yes MALLOC=libc PREFIX={self.machine.checkout}/.cache/redis install", made[2])
        self.assertIn("v=7.2.15", self.machine.setup()[1])

    def test_python_goes_into_the_cache_when_that_of_the_system_is_too_old(self) -> None:
        self.machine.offers_python()
        self.machine.is_user("somewhere")
        self.machine.package("python3", python3='[ "$1" = --version ] && echo Python 3.9.2')
        self.machine.has_all()
        made = self.installed()
        self.assertEqual([call.split()[0] for call in made], ["curl", "python3", "python"])
        self.assertTrue((self.machine.checkout / ".cache/python/bin/python3").exists())
        self.assertEqual(self.machine.setup(TIDEGATE_SETUP="no")[0], 0)


class Rustup(Setup):
    """The set-up uses a rustup that is there already."""

    def test_without_the_pinned_version(self) -> None:
        self.machine.has("gcc", "rustup")
        # A proxy of rustup would download, even if it is only asked for its version.
        proxy = '[ -e "$INSTALLED" ] || call "$@"\n'
        self.machine.program(self.machine.bin, "cargo", proxy + RUSTUP)
        made = self.installed("demo")
        component = "--profile minimal --component rustfmt --component clippy"
        self.assertEqual(made, [f"rustup toolchain install {PINNED} --no-self-update {component}"])
        self.assertFalse((self.machine.checkout / ".cache/rust").exists())

    def test_beside_a_cargo_that_is_too_old(self) -> None:
        self.machine.has("gcc", "rustup")
        self.machine.program(self.machine.bin, "cargo", "echo cargo 1.66.0")
        self.assertEqual(len(self.installed("demo")), 1)
        proxy = self.machine.checkout / ".cache/rust/bin/cargo"
        self.assertEqual(proxy.resolve(), self.machine.bin / "rustup")
        self.assertEqual(self.machine.setup("demo", TIDEGATE_SETUP="no"), (0, ""))

    def test_its_line_is_shown(self) -> None:
        self.machine.has("gcc", "rustup")
        self.assertIn(f"rustup toolchain install {PINNED}", self.refused("demo", TIDEGATE_SETUP="no"))


class Failing(Setup):
    def failed(self, *arguments: str, **variables: str) -> str:
        status, told = self.machine.setup(*arguments, **variables)
        self.assertEqual(status, 1, told)
        self.assertEqual(told.count("setup: paste these lines, then run the command again:"), 1, told)
        return told

    def test_without_a_network(self) -> None:
        self.machine.has("gcc", "curl")
        told = self.failed("demo")
        self.assertIn("curl: (6) Could not resolve host", told)
        self.assertIn("sh.rustup.rs", told)

    def test_packages_that_cannot_be_had(self) -> None:
        told = self.failed(BROKEN="1")
        self.assertIn("not everything could be installed", told)
        self.assertIn("apt-get install -y --no-install-recommends gcc libc6-dev curl python3", told)

    def test_a_download_with_another_sum_is_not_run(self) -> None:
        self.machine.has("gcc", "curl")
        self.machine.offers_rust()
        path = self.machine.provides / "downloads" / "rustup-init"
        path.write_bytes(path.read_bytes() + b"\n")
        told = self.failed("demo")
        self.assertIn("it is not used", told)
        self.assertNotIn("CALL rustup-init", told)
        self.assertFalse((self.machine.checkout / ".cache/setup/rustup-init").exists())


if __name__ == "__main__":
    unittest.main()
