"""5,000 requests to two workers of each framework admit exactly the limit, on a file and on Redis."""

from __future__ import annotations

import http.client
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from web_servers import FRAMEWORKS, Served

LIMIT, REQUESTS, CLIENTS = 1000, 5000, 10


@pytest.mark.parametrize("command", FRAMEWORKS.values(), ids=FRAMEWORKS.keys())
def test_a_load_is_admitted_exactly_up_to_the_limit(command: list[str], shared_store: str, tmp_path: Path) -> None:
    served = Served(command, shared_store, f"load{os.getpid()}-{tmp_path.name}")
    statuses: Counter[int] = Counter()

    def visit() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        left = REQUESTS // CLIENTS
        while left:
            try:
                status, headers, _ = served.get("/load", connection)
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server may close an idle connection. It has not read the request then.
                connection.close()
            else:
                left -= 1
                statuses[status] += 1
                assert (status == 429) == ("retry-after" in headers)
        connection.close()

    try:
        threads = [threading.Thread(target=visit) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        served.close()
    assert statuses == {200: LIMIT, 429: REQUESTS - LIMIT}
