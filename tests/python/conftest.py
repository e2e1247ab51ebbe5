"""Fixtures that the Python tests share: one server of Redis, one of PostgreSQL, and a prefix for each test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client import Servers
from strict_services import StrictServer, StrictService

_numbers = itertools.count()

# The slowest files. They run first, so that none of them runs last and alone. xdist hands out files in this order.
LONGEST = (
    "test_outgoing_clients.py",
    "test_outgoing_learning.py",
    "test_celery.py",
    "test_programs.py",
    "test_followed_pages.py",
    "test_web_servers.py",
    "test_web_contract_policies.py",
    "test_web_fastapi_servers.py",
    "test_loop_reader.py",
    "test_servers.py",
    "test_installed.py",
)


# A shell starts background programs with Ctrl-C ignored. Tests send it to themselves, so it must work again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def server() -> Iterator[Servers]:
    with Servers("single") as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_url(server: Servers) -> str:
    return server.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with Servers("postgres") as servers:
        yield f"{servers.url}?create=yes"


@pytest.fixture
def prefix() -> str:
    """Returns a prefix that no other test has, and no other run on the same server."""
    return f"py{os.getpid()}-{next(_numbers)}"


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    """Returns the URL of a store for this test. On Redis and on PostgreSQL the tests share one server."""
    if kind == "file":
        folder: Path = request.getfixturevalue("tmp_path")
        return f"file://{folder}/limits?max_bytes=4MB"
    url: str = "memory://" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    return url


@pytest.fixture(params=["memory", "file", "redis", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    """Every kind of store, one after the other."""
    return url_of(request.param, request)


@pytest.fixture(params=["file", "redis", "postgres"])
def shared_store(request: pytest.FixtureRequest) -> str:
    """Every kind of store that processes share, one after the other."""
    return url_of(request.param, request)


@pytest.fixture(scope="session")
def strict() -> Iterator[StrictServer]:
    """A process that runs services with strict books."""
    with StrictServer() as running:
        yield running


@pytest.fixture
def service(strict: StrictServer) -> StrictService:
    """A service without limits."""
    return strict.service()


@pytest.fixture
def serve() -> Iterator[Any]:
    """Serves views of Django by path: `Site.serve`."""
    from web_django import Site

    with Site() as site:
        yield site.serve


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test of an `adapter` or an `outgoing` client with each of them. Only such tests import the packages."""
    if "adapter" in metafunc.fixturenames:
        from web_adapters import ADAPTERS

        metafunc.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
    if "outgoing" in metafunc.fixturenames:
        from outgoing_clients import CLIENTS

        metafunc.parametrize("outgoing", CLIENTS, ids=lambda client: client.name)


@pytest.fixture
def clock() -> Any:
    """A clock that begins at a whole second, for limiters in memory."""
    from tidegate import ManualClock

    return ManualClock(1_700_000_000.0)


@pytest.fixture(params=[False, True], ids=["wsgi", "asgi"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
