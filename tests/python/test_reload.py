"""A reload takes a changed policy file as a whole or not at all, and keeps the parts that code relies on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

import tidegate.flask
from tidegate import AsyncLimiter, Limiter, Policy
from tidegate.errors import ConfigError, PolicyError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidegate.yaml"
    path.write_text("store: memory://\npolicies: {login: 20/minute, rest: 1/s}\n")
    return path


def test_a_file_and_policies_in_code_go_together_and_those_in_code_stay(file: Path) -> None:
    with Limiter.from_file(file, policies={"mail": "3/minute", "send": Policy("2/hour")}) as limiter:
        assert limiter.check("mail", "k", 2)
        for text, login in [("20/minute", 20), ("5/minute", 5)]:
            file.write_text(f"policies: {{login: {text}}}\n")
            limiter.reload()
            assert [limiter.policy(name).limits[0].count for name in ("login", "mail", "send")] == [login, 3, 2]
        assert limiter.check("mail", "k").remaining == 0


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def limit_of(limiter: Limiter) -> int:
    return limiter.policy("login").limits[0].count


def replace(file: Path, text: str) -> None:
    """Writes it at once, because a busy machine may leave a file that is half written for longer than a look."""
    other = file.with_name("other.yaml")
    other.write_text(text)
    other.replace(file)


def test_a_watched_file_is_taken_when_it_changes(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tidegate"):
        with Limiter.from_file(file, watch=0.01) as limiter:
            generation = limiter._generation
            replace(file, "policies: {login: 5/minute, rest: 1/s}\n")
            wait_until("it is taken", lambda: limit_of(limiter) == 5)
            assert limiter._generation != generation
            replace(file, "policies: {login: 5 per fortnight}\n")
            wait_until("it is told", lambda: "is not taken" in caplog.text)
            replace(file, "policies: {login: 6/minute}\n")
            wait_until("the next one is taken", lambda: limit_of(limiter) == 6)
            assert (limiter.counters()["reloads"], limiter.counters()["reloads_refused"]) == (2, 1)
    assert caplog.text.count("is not taken") == 1
    with pytest.raises(ConfigError, match="from_file"):
        Limiter(watch=5)
    with pytest.raises(ConfigError, match="1 day"):
        Limiter.from_file(file, watch=timedelta(days=2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_watches_too(file: Path) -> None:
    with Limiter.from_file(file, watch=0.01) as limiter:
        child = os.fork()
        if child == 0:
            try:
                limiter.check("login", "k")
                file.write_text("policies: {login: 7/minute}\n")
                wait_until("the child takes it", lambda: limiter.check("login", "k").limit == 7)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        wait_until("so does the parent", lambda: limiter.check("login", "k").limit == 7)


def test_the_async_limiter_takes_them_too(file: Path) -> None:
    async def run() -> None:
        limiter = AsyncLimiter.from_file(file, policies={"mail": "3/minute"})
        await limiter.reload()
        assert (await limiter.check("mail", "k")).limit == 3
        file.write_text("store: redis://127.0.0.1:1\npolicies: {login: 5/minute}\n")
        with pytest.raises(ConfigError, match="store"):
            await limiter.reload()
        assert limiter.policy("login").limits[0].count == 20
        await limiter.close()

    asyncio.run(run())


def test_a_name_in_both_is_an_error(file: Path) -> None:
    with pytest.raises(PolicyError, match=rf'{file}:2.*"login", of which one was given in code'):
        Limiter.from_file(file, policies={"login": "3/minute"})
    with Limiter.from_file(file, policies={"mail": "3/minute"}) as limiter:
        file.write_text("policies:\n  login: 9/minute\n  mail: 4/minute\n")
        with pytest.raises(PolicyError, match=rf'{file}:3.*"mail", of which one was given in code'):
            limiter.reload()
        assert limiter.policy("login").limits[0].count == 20


def test_a_changed_store_refuses_the_whole_file(file: Path) -> None:
    with Limiter.from_file(file) as limiter:
        file.write_text("store: redis://u:hunter2@127.0.0.1:1\npolicies: {login: 5/minute}\n")
        with pytest.raises(ConfigError, match=rf"{file}.*store has changed") as caught:
            limiter.reload()
        assert caught.value.code == "config_invalid" and "hunter2" not in str(caught.value)
        assert limiter.policy("login").limits[0].count == 20


def refuses(limiter: Any, file: Path, *parts: str) -> None:
    with pytest.raises(ConfigError) as caught:
        limiter.reload()
    for part in (str(file), *parts):
        assert part in str(caught.value)


def test_a_policy_that_a_decorated_function_uses_stays(file: Path) -> None:
    with Limiter.from_file(file) as limiter:

        @limiter.limit("login", key="k")
        def sign_in() -> str:
            return "in"

        @limiter.to_async().limit("rest", key="k")
        async def read() -> str:
            return "read"

        file.write_text("policies: {other: 5/minute}\n")
        refuses(limiter, file, '"login"', "sign_in", '"rest"', "read")
        assert sign_in() == "in" and asyncio.run(read()) == "read"
        del read
        file.write_text("policies: {login: 5/minute}\n")
        gc.collect()
        limiter.reload()
        assert limiter.peek("login", "k").limit == 5


def test_a_policy_that_a_web_layer_uses_stays(file: Path) -> None:
    with Limiter.from_file(file) as limiter:
        app = Flask(__name__)
        tg = tidegate.flask.Tidegate(app, limiter=limiter, default="rest")

        @app.get("/")
        @tg.limit("login")
        def index() -> str:
            return "ok"

        file.write_text("policies: {other: 5/minute}\n")
        refuses(limiter, file, '"login"', "index", '"rest"', "flask")
        assert app.test_client().get("/").status_code == 200


def test_a_generation_says_that_policies_were_reloaded(file: Path) -> None:
    with Limiter.from_file(file) as limiter:
        before = limiter._generation
        file.write_text("nothing: 5\n")
        with pytest.raises(PolicyError):
            limiter.reload()
        assert limiter._generation == before == limiter.to_async()._generation
        file.write_text("policies: {login: concurrency 1}\n")
        limiter.reload()
        assert limiter._generation != before


def test_a_decorated_function_notices_that_its_policy_holds_units_now(file: Path) -> None:
    with Limiter.from_file(file) as limiter:

        @limiter.limit("login", key="k")
        def function() -> int:
            return limiter.peek("login", "k").remaining

        @limiter.limit("login", key="k")
        def generator() -> Any:
            yield limiter.peek("login", "k").remaining

        @limiter.limit("login", key="k")
        async def coroutine() -> int:
            return limiter.peek("login", "k").remaining

        assert [function(), *generator(), asyncio.run(coroutine())] == [19, 18, 17]
        file.write_text("policies: {login: concurrency 2, rest: 1/s}\n")
        limiter.reload()
        for _ in range(3):
            assert [function(), *generator(), asyncio.run(coroutine())] == [1, 1, 1]
        assert limiter.peek("login", "k").remaining == 2, "what was held was given back"
