"""The set-up where it may install nothing: its messages, and the things that it leaves alone."""

from __future__ import annotations

import unittest

from machine import PINNED, Setup, calls


class NothingMissing(Setup):
    def test_the_demo_says_nothing_and_the_tests_say_what_they_use(self) -> None:
        self.machine.has_all()
        for allowed in ("no", "yes"):
            self.assertEqual(self.machine.setup("demo", TIDEGATE_SETUP=allowed), (0, ""))
            status, told = self.machine.setup(TIDEGATE_SETUP=allowed)
            self.assertEqual((status, calls(told)), (0, []), told)
            self.assertIn(f"setup: ready (cargo {PINNED}, Python ", told)

    def test_the_demo_needs_neither_python_nor_node_nor_redis(self) -> None:
        self.machine.has("cargo", "gcc")
        self.assertEqual(self.machine.setup("demo", TIDEGATE_SETUP="no"), (0, ""))

    def test_a_wrong_word_is_an_error(self) -> None:
        status, told = self.machine.setup(TIDEGATE_SETUP="off")
        self.assertEqual((status, told), (1, "setup: TIDEGATE_SETUP is «off»; it can be yes or no\n"))
        status, told = self.machine.setup("everything")
        self.assertEqual(status, 1)
        self.assertIn("«everything» is nothing to set up", told)


class Refused(Setup):
    """Runs with TIDEGATE_SETUP=no, without each thing in turn."""

    def lines_without(self, *programs: str, **variables: str) -> str:
        self.machine.has_all()
        self.machine.lacks(*programs)
        told = self.refused(TIDEGATE_SETUP="no", **variables)
        self.assertIn("TIDEGATE_SETUP=no, so nothing was installed.", told)
        listed = told.split("setup: TIDEGATE_SETUP")[0].splitlines()[1:]
        self.assertEqual(len(listed), 1, f"only that is missing: {listed}")
        return told

    def test_a_compiler(self) -> None:
        told = self.lines_without("cc")
        self.assertIn("apt-get install -y --no-install-recommends gcc libc6-dev\n", told)

    def test_a_compiler_that_compiles_nothing(self) -> None:
        self.machine.package("gcc", cc="exit 1")
        self.assertIn("a C compiler with the headers", self.lines_without())

    def test_rust(self) -> None:
        told = self.lines_without("cargo")
        self.assertIn(f"sh.rustup.rs | sh -s -- -y --default-toolchain {PINNED}", told)

    def test_python(self) -> None:
        self.assertIn("python3 python3-venv\n", self.lines_without("python3"))

    def test_openssl(self) -> None:
        self.assertIn("--no-install-recommends openssl\n", self.lines_without("openssl"))

    def test_redis(self) -> None:
        self.assertIn("--no-install-recommends redis-server\n", self.lines_without("redis-server"))

    def test_another_server(self) -> None:
        told = self.lines_without(TIDEGATE_REDIS_SERVER="valkey-server")
        self.assertIn("valkey-server, which TIDEGATE_REDIS_SERVER names", told)

    def test_node(self) -> None:
        self.assertIn("deb.nodesource.com", self.lines_without("node"))

    def test_npm(self) -> None:
        self.assertIn("Node 20 or newer with npm; here is v22.1.0", self.lines_without("npm"))

    def test_certificates(self) -> None:
        told = self.lines_without(SSL_CERT_FILE="/nowhere/certificates")
        self.assertIn("--no-install-recommends ca-certificates\n", told)

    def test_python_packages(self) -> None:
        self.machine.has_all()
        (self.machine.checkout / ".cache/venv/requirements").unlink()
        self.assertIn("\n    scripts/python.sh\n", self.refused(TIDEGATE_SETUP="no"))

    def test_node_modules(self) -> None:
        self.machine.has_all()
        (self.machine.checkout / "node_modules/.tidegate-lock").write_text("{}", encoding="utf-8")
        self.assertIn("\n    scripts/node.sh\n", self.refused(TIDEGATE_SETUP="no"))

    def test_what_is_too_old_is_named(self) -> None:
        self.machine.package("cargo", cargo="echo cargo 1.66.0")
        self.machine.package("nodejs", node="echo v18.20.4")
        self.machine.package("redis-server", **{"redis-server": "echo Redis server v=5.0.7 sha=0"})
        self.machine.package("python3", python3='[ "$1" = --version ] && echo Python 3.9.2')
        self.machine.has_all()
        told = self.refused(TIDEGATE_SETUP="no")
        for old in ("here is cargo 1.66.0", "here is v18.20.4", "here is Redis server v=5.0.7", "here is Python 3.9.2"):
            self.assertIn(old, told)
        self.assertNotIn("apt-get install -y --no-install-recommends python3", told)

    def test_everything_is_in_one_message(self) -> None:
        told = self.refused(TIDEGATE_SETUP="no", SSL_CERT_FILE="/nowhere")
        self.assertEqual(len(told.split("setup: TIDEGATE_SETUP")[0].splitlines()), 11)
        self.assertIn(
            "ca-certificates gcc libc6-dev curl python3 python3-venv openssl redis-server postgresql pgbouncer\n", told
        )

    def test_other_systems(self) -> None:
        for system, manager, line in (
            (
                "Linux",
                "dnf",
                "dnf install -y gcc curl python3 openssl /usr/bin/redis-server postgresql-server pgbouncer\n",
            ),
            ("Darwin", "brew", "brew install python@3.13 openssl redis postgresql@17 pgbouncer\n"),
            ("Linux", "", "# Redis 6.2 or newer: https://redis.io/"),
        ):
            with self.subTest(system=system, manager=manager):
                self.machine.is_system(system, manager)
                self.assertIn(line, self.refused(TIDEGATE_SETUP="no"))


class NotAllowed(Setup):
    def test_without_root_the_lines_are_for_what_needs_it(self) -> None:
        self.machine.is_user("somewhere", sudo="exit 1")
        self.machine.has("python3", "curl")
        told = self.refused()
        self.assertIn("it is not root, and sudo asks for a password", told)
        line = "apt-get update && apt-get install -y --no-install-recommends "
        line += "gcc libc6-dev openssl redis-server postgresql pgbouncer"
        self.assertIn(f"    sudo sh -c '{line}'\n", told)
        self.assertIn(f"setup: the command itself installs the rest then:\n    Rust {PINNED}, into .cache/rustup", told)

    def test_without_sudo_the_line_is_for_su(self) -> None:
        self.machine.is_user("somewhere")
        self.machine.lacks("sudo")
        told = self.refused("demo")
        self.assertIn("sudo is not here", told)
        line = "apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev curl"
        self.assertIn(f"    su -c '{line}'\n", told)

    def test_without_a_known_manager(self) -> None:
        self.machine.is_system("Linux", "")
        told = self.refused("demo")
        self.assertIn("none of them is here", told)
        self.assertIn("# your system's package of gcc", told)


if __name__ == "__main__":
    unittest.main()
