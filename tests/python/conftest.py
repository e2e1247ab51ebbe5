"""What the Python tests share: one Redis server, and for each test a prefix of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from client import Servers

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Servers]:
    with Servers("single") as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_url(server: Servers) -> str:
    return server.url


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test has, and no other run on the same server."""
    return f"py{os.getpid()}-{next(_numbers)}"


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> str:
    """Both stores, one after the other."""
    if request.param == "memory":
        return "memory://"
    url: str = request.getfixturevalue("redis_url")
    return url


@pytest.fixture
def serve() -> Iterator[Any]:
    """Serves views of Django by path: `Site.serve`."""
    from web_django import Site

    with Site() as site:
        yield site.serve


@pytest.fixture(params=[False, True], ids=["wsgi", "asgi"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
