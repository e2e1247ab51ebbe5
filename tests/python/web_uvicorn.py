"""An application on a real uvicorn in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from web import wait_until


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[int]:
    """Serves the application on this machine alone. Yields the port."""
    given = {"log_level": "critical", "access_log": False, "ws": "wsproto", "proxy_headers": False, **options}
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, **given))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port: int = server.servers[0].sockets[0].getsockname()[1]
        yield port
    finally:
        server.should_exit = True
        thread.join(30)
