"""Real servers of Redis and PostgreSQL for the tests of every language.

    python3 tests/servers/servers.py '{"kind": "single", "options": {"tls": true}}'

Kinds are single, replica, sentinel, cluster, postgres, standby and pgbouncer. harness/options.py lists the options.
Once the servers answer, one JSON line on stdout has their addresses. Then the harness reads commands from stdin, one
JSON object per line, and answers each with one JSON line:

    {"do": "kill", "server": 0}     also stop, cont, start, restart (same port, no data)
    {"do": "command", "server": 0, "args": ["CONFIG", "SET", "maxmemory", "1mb"]}     SQL, for PostgreSQL
    {"do": "clock", "server": 0, "seconds": -3600}      its wall clock, with the option "clock"

When stdin closes, the harness kills every server and removes every file, also on SIGTERM, SIGINT and even SIGKILL.
TIDEGATE_REDIS_SERVER names another server program, such as valkey-server.
"""

import sys

from harness.control import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
