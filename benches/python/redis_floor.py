"""One round of redis-benchmark with a script of one counter: the rate of a client in C that only sends and counts.

Its arguments are `name=value`: url, pipeline (the scripts that travel together, on one connection), requests. It prints
one line of JSON as every contender does.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from urllib.parse import urlsplit

import redis
from peers.redis_py_peer import SCRIPT, SCRIPT_ARGUMENTS


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sha = redis.Redis.from_url(given["url"]).script_load(SCRIPT)
    words = ["redis-benchmark", "-p", str(urlsplit(given["url"]).port), "-c", "1", "-P", given["pipeline"], "--csv"]
    words += ["-r", "1000", "-n", given["requests"]]
    words += ["EVALSHA", str(sha), "1", "bare:user-__rand_int__", *[str(number) for number in SCRIPT_ARGUMENTS]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = list(csv.reader(done.stdout.splitlines()))
    rate = float(dict(zip(rows[0], rows[1], strict=True))["rps"])
    print(json.dumps({"value": rate, "decisions": int(given["requests"])}))


if __name__ == "__main__":
    main()
