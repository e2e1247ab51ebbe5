"""The harness itself: it starts the servers it announces, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from client import PROGRAM, Servers, ServersError
from harness.options import Options as HarnessOptions
from harness.ports import free_port
from harness.resp import Connection, ReplyError
from harness.server import Server, Shared

WITHIN = 10.0  # seconds, long enough on a loaded machine


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WITHIN
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        # A zombie, which init has not reaped yet, counts as gone.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return not Path("/proc").exists()


def replies(port: int, *commands: str) -> list[Any]:
    """Returns the reply to each command over TCP. An error reply is an exception in the list."""
    return converse(socket.create_connection(("127.0.0.1", port), timeout=5), *commands)


def converse(connected: socket.socket, *commands: str) -> list[Any]:
    with Connection(connected) as connection:
        return [reply(connection, command) for command in commands]


def reply(connection: Connection, command: str) -> Any:
    try:
        return connection.command(*command.split())
    except ReplyError as error:
        return error


class Gone(unittest.TestCase):
    """Checks that nothing of a harness remains."""

    def assert_gone(self, described: dict[str, Any]) -> None:
        pids = [server["pid"] for server in described["servers"]] + [described["pid"]]
        self.assertTrue(eventually(lambda: not any(map(exists, pids))), f"of the processes {pids} some remain")
        self.assertTrue(eventually(lambda: not os.path.exists(described["dir"])), "files remain")


class Kinds(Gone):
    def test_single(self) -> None:
        with Servers() as servers:
            self.assertEqual(servers.url, f"redis://127.0.0.1:{servers.port()}/0")
            self.assertEqual(replies(servers.port(), "PING"), ["PONG"])
            self.assertEqual(servers.command("CONFIG", "GET", "save"), ["save", ""])
        self.assert_gone(servers.json)

    def test_replica(self) -> None:
        with Servers("replica", replicas=2) as servers:
            self.assertEqual(len(servers.urls["replicas"]), 2)
            servers.command("SET", "k", "v")
            servers.command("WAIT", 2, 5_000)
            self.assertEqual([servers.command("GET", "k", server=i) for i in (1, 2)], ["v", "v"])
        self.assert_gone(servers.json)

    def test_sentinel_fails_over(self) -> None:
        with Servers("sentinel", password="secret", down_after_ms=300) as servers:
            roles = [server["role"] for server in servers.servers]
            self.assertEqual(roles, ["primary", "replica", "replica", "sentinel", "sentinel", "sentinel"])

            def primary() -> int:
                address = servers.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tidegate", server=3)
                return int(address[1])

            self.assertEqual(primary(), servers.port(0))
            servers.kill(0)
            self.assertTrue(eventually(lambda: primary() in (servers.port(1), servers.port(2))))
        self.assert_gone(servers.json)

    def test_cluster(self) -> None:
        with Servers("cluster") as servers:
            self.assertEqual(len(servers.servers), 6)
            for i in range(6):
                info = servers.command("CLUSTER", "INFO", server=i)
                self.assertIn("cluster_state:ok", info)
                self.assertIn("cluster_slots_ok:16384", info)
            # {06S} hashes to slot 0, the first primary's.
            self.assertEqual(replies(servers.port(0), "SET {06S} v"), ["OK"])
            self.assertIn("MOVED 0", str(replies(servers.port(2), "SET {06S} v")[0]))
            # A restarted node has lost its data and still knows the cluster.
            servers.restart(0)
            self.assertTrue(eventually(lambda: "cluster_state:ok" in servers.command("CLUSTER", "INFO")))
        self.assert_gone(servers.json)

    def test_cluster_with_tls(self) -> None:
        with Servers("cluster", tls=True) as servers:
            self.assertTrue(servers.url.startswith("rediss+cluster://"))
        self.assert_gone(servers.json)

    def test_a_standby_that_is_promoted(self) -> None:
        with Servers("standby") as servers:
            servers.command("CREATE TABLE written AS SELECT 1 AS number")
            tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'written'"
            self.assertTrue(eventually(lambda: servers.command(tables, server=1) == ["1"]))
            servers.kill(0)
            servers.command("SELECT pg_promote()", "INSERT INTO written VALUES (2)", server=1)
            self.assertEqual(servers.command("SELECT count(*) FROM written", server=1), ["2"])
        self.assert_gone(servers.json)

    def test_a_pooler_that_is_restarted(self) -> None:
        with Servers("pgbouncer") as servers:
            servers.restart(1)
            self.assertEqual(servers.command("SELECT 1", server=1), ["1"])
        self.assert_gone(servers.json)


class Options(Gone):
    def test_tls_wants_the_clients_certificate(self) -> None:
        with Servers(tls=True, client_certs=True) as servers:
            files = servers.json["tls"]
            port = servers.servers[0]["tls_port"]
            context = ssl.create_default_context(cafile=files["ca"])
            # A rejected client sees the alert or only the end of the connection, depending on its timing.
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                self.ping(context, port)
            context.load_cert_chain(files["client_cert"], files["client_key"])
            self.assertEqual(self.ping(context, port), ["PONG"])
        self.assert_gone(servers.json)

    def test_tls_expired(self) -> None:
        with Servers(tls="expired") as servers:
            context = ssl.create_default_context(cafile=servers.json["tls"]["ca"])
            with self.assertRaisesRegex(ssl.SSLError, "expired"):
                self.ping(context, servers.servers[0]["tls_port"])

    def test_password_users_databases_config(self) -> None:
        users = {"app": "on >app-secret ~tg:* +get"}
        with Servers(password="p w/@", users=users, databases=3, config={"maxmemory": "10mb"}) as servers:
            self.assertIn("redis://:p%20w%2F%40@127.0.0.1", servers.url)
            answers = replies(servers.port(), "PING", "AUTH app app-secret", "GET tg:1", "GET other", "SET tg:1 v")
            self.assertIn("NOAUTH", str(answers[0]))
            self.assertEqual(answers[1:3], ["OK", None])
            self.assertTrue(all("NOPERM" in str(answer) for answer in answers[3:]), answers)
            self.assertEqual(servers.command("CONFIG", "GET", "databases"), ["databases", "3"])
            self.assertEqual(servers.command("CONFIG", "GET", "maxmemory"), ["maxmemory", "10485760"])

    def test_unix_socket(self) -> None:
        with Servers() as servers:
            path = servers.servers[0]["unix"]
            self.assertEqual(servers.urls["unix"], f"redis+unix://{path}")
            with Connection.unix(path) as connection:
                self.assertEqual(connection.command("PING"), "PONG")

    def ping(self, context: ssl.SSLContext, port: int) -> list[Any]:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
            return converse(context.wrap_socket(raw, server_hostname="127.0.0.1"), "PING")


class Commands(Gone):
    def test_kill_start_restart(self) -> None:
        with Servers() as servers:
            port = servers.port()
            servers.command("SET", "k", "v")
            servers.kill()
            with self.assertRaises(ConnectionRefusedError):
                replies(port, "PING")
            servers.start()
            self.assertEqual(replies(port, "EXISTS k"), [0], "it is back on its port, and empty")
            servers.command("SET", "k", "v")
            servers.restart()
            self.assertEqual(replies(port, "EXISTS k"), [0])

    def test_stop_and_cont(self) -> None:
        with Servers() as servers:
            servers.stop()
            with self.assertRaises(socket.timeout):
                converse(socket.create_connection(("127.0.0.1", servers.port()), timeout=0.2), "PING")
            servers.cont()
            self.assertEqual(replies(servers.port(), "PING"), ["PONG"])

    def test_a_clock_that_jumps(self) -> None:
        with Servers("single", clock=True) as servers:
            before = int(servers.command("TIME")[0])
            servers.clock(86_400)
            ahead = int(servers.command("TIME")[0]) - before
            self.assertTrue(86_390 <= ahead <= 86_460, ahead)
            servers.clock(-2 * 86_400)
            behind = int(servers.command("TIME")[0]) - before
            self.assertTrue(-86_410 <= behind <= -86_340, behind)
        with Servers("single") as servers, self.assertRaisesRegex(ServersError, "clock"):
            servers.clock(1)

    def test_mistakes_are_answered(self) -> None:
        with Servers() as servers:
            for mistake in (
                lambda: servers.kill(7),
                lambda: servers.start(0),
                lambda: servers.command("NONSENSE"),
                lambda: servers._run("dance", 0),
            ):
                with self.assertRaises(ServersError):
                    mistake()
            self.assertEqual(servers.command("PING"), "PONG", "and the harness continues")

    def test_bad_requests(self) -> None:
        for kind, options, text in (
            ("ring", {}, "unknown kind"),
            ("single", {"pasword": "x"}, "unknown option 'pasword'"),
            ("single", {"config": {"no-such-setting": 1}}, "no-such-setting"),
        ):
            with self.assertRaisesRegex(ServersError, text):
                Servers(kind, **options)

    def test_missing_program(self) -> None:
        os.environ["TIDEGATE_REDIS_SERVER"] = "no-such-redis"
        try:
            with self.assertRaisesRegex(ServersError, "no-such-redis was not found: run `make setup`"):
                Servers()
        finally:
            del os.environ["TIDEGATE_REDIS_SERVER"]


class Ends(Gone):
    """However a harness ends, nothing of it remains."""

    def start(self) -> subprocess.Popen[str]:
        request = json.dumps({"kind": "replica"})
        child = subprocess.Popen(
            [sys.executable, str(PROGRAM), request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        self.addCleanup(self.reap, child)
        return child

    def reap(self, child: subprocess.Popen[str]) -> None:
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        child.wait()

    def described(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        assert child.stdin is not None and child.stdout is not None
        described: dict[str, Any] = json.loads(child.stdout.readline())
        # One server is stopped, so that only SIGKILL ends it.
        child.stdin.write('{"do":"stop","server":1}\n')
        child.stdin.flush()
        self.assertTrue(json.loads(child.stdout.readline())["ok"])
        return described

    def test_stdin_closes(self) -> None:
        child = self.start()
        described = self.described(child)
        assert child.stdin is not None
        child.stdin.close()
        self.assertEqual(child.wait(WITHIN), 0)
        # The folder is already gone, without any wait.
        self.assertFalse(os.path.exists(described["dir"]))
        self.assert_gone(described)

    def test_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            child = self.start()
            described = self.described(child)
            child.send_signal(number)
            self.assertEqual(child.wait(WITHIN), 128 + number)
            self.assert_gone(described)

    @unittest.skipUnless(sys.platform.startswith("linux"), "only Linux ends children with their parent")
    def test_sigkill(self) -> None:
        child = self.start()
        described = self.described(child)
        child.kill()
        child.wait()
        self.assert_gone(described)

    def test_parent_ends_during_the_start(self) -> None:
        child = self.start()
        self.reap(child)
        self.assertEqual(child.returncode, 0)


class SideBySide(Gone):
    def test_a_port_lost_to_another_process(self) -> None:
        with tempfile.TemporaryDirectory() as directory, socket.socket() as rival:
            rival.bind(("127.0.0.1", 0))
            rival.listen()
            taken = rival.getsockname()[1]
            free = free_port()
            shared = Shared("redis-server", directory, "secret", HarnessOptions({}), None)
            server = Server(shared, 0, "primary")
            with mock.patch("harness.server.free_port", side_effect=[taken, free]):
                server.launch()
                try:
                    server.wait_ready()
                    self.assertEqual(server.port, free)
                    self.assertEqual(replies(free, "PING"), ["PONG"])
                finally:
                    server.kill()

    def test_many_at_once(self) -> None:
        several = [Servers() for _ in range(8)]
        try:
            ports = {servers.port() for servers in several}
            self.assertEqual(len(ports), 8)
        finally:
            for servers in several:
                servers.close()
        for servers in several:
            self.assert_gone(servers.json)


if __name__ == "__main__":
    unittest.main()
