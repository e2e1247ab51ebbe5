"""The application of the page about actix-web, compiled as a project of its own, serves and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from harness.ports import free_port
from paths import ROOT
from snippets import blocks_of

PAGE = ROOT / "docs" / "frameworks" / "rust.md"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the files of the page, with this crate in the place of the published one, and compiles them."""
    project = tmp_path_factory.mktemp("actix")
    (project / "src").mkdir()
    for block in blocks_of(PAGE):
        if block.title:
            (project / block.title).write_text(block.code, encoding="utf-8")
    package = '[package]\nname = "page"\nedition = "2024"\n\n'
    patch = f"\n[patch.crates-io]\ntidegate = {{ path = {json.dumps(str(ROOT / 'core'))} }}\n"
    manifest = project / "Cargo.toml"
    manifest.write_text(package + manifest.read_text(encoding="utf-8") + patch, encoding="utf-8")
    environ = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / ".cache" / "actix")}
    subprocess.run(["cargo", "build", "--manifest-path", manifest], env=environ, check=True, timeout=3_000)
    return ROOT / ".cache" / "actix" / "debug" / "page"


@pytest.fixture
def port(program: Path) -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([program], env={**os.environ, "PORT": str(port)})
    try:
        deadline = time.monotonic() + 60
        while ask(port, "/elsewhere") is None:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait(20)


def ask(port: int, path: str = "/") -> tuple[HTTPResponse, bytes] | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response, response.read()
    except OSError:
        return None
    finally:
        connection.close()


def test_the_page_limits_each_address(port: int) -> None:
    # The first request, of another path, was charged too.
    answers = [answer for answer in (ask(port) for _ in range(6)) if answer is not None]
    assert [response.status for response, _ in answers] == [200] * 4 + [429] * 2
    assert [body for _, body in answers[:4]] == [b"hello"] * 4
    remaining = [response.getheader("X-RateLimit-Remaining") for response, _ in answers]
    assert remaining == ["3", "2", "1", "0", "0", "0"]
    refused, body = answers[4]
    assert refused.getheader("Content-Type") == "application/problem+json" and refused.getheader("Retry-After")
    assert json.loads(body)["violated-policies"] == ["api"]
