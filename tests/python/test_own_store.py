"""Limiters on a store of the application: tests/python/own_stores.py has one in memory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import vectors
from own_stores import AsyncTable, Table, own_store
from paths import ROOT
from snippets import blocks_of
from snippets_page import namespace_of
from tidegate import AsyncLimiter, ClosedError, ConfigError, Limiter, StoreError
from tidegate.stores import NotApplied, verify

DEFECTS = json.loads((ROOT / "tests" / "stores" / "defects.json").read_text(encoding="utf-8"))


def is_renewed_by_clock(case: dict[str, Any]) -> bool:
    """The thread that moves the clock would renew holds, and cannot wait for its event loop."""
    return "concurrency" in json.dumps(case) and any("at" in step for step in case["steps"])


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter], ids=["sync", "async"])
def test_vectors(kind: type[Limiter] | type[AsyncLimiter]) -> None:
    async def run_all() -> list[str]:
        failed = []
        for name, case in vectors.cases():
            if (kind is Limiter and vectors.cancels(case)) or (kind is AsyncLimiter and is_renewed_by_clock(case)):
                continue
            try:
                await vectors.run(case, kind, own_store(kind))
            except AssertionError as error:
                failed.append(f"{name}: {error}")
        return failed

    assert asyncio.run(run_all()) == []


def test_a_whole_store_has_no_defect() -> None:
    verify(Table())

    async def main() -> None:
        await verify(AsyncTable())

    asyncio.run(main())


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_kit_names_a_defect(defect: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verify(Table(defect))
    assert DEFECTS[defect] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_limiter_needs_its_kind_of_methods() -> None:
    with pytest.raises(ConfigError, match=r"use AsyncLimiter"):
        Limiter(AsyncTable())
    with pytest.raises(ConfigError, match=r"use Limiter with Table"):
        AsyncLimiter(Table())

    class Half:
        def compare_and_swap(self, changes: Any, timeout: float) -> Any: ...

    with pytest.raises(ConfigError, match=r"Half has no method read"):
        Limiter(Half())
    with pytest.raises(TypeError, match=r"KeyValueStore"):
        Limiter(object())  # type: ignore[arg-type]


def limiter_on(store: Any, **options: Any) -> Limiter:
    return Limiter(store, policies={"api": "5/hour", "holds": "concurrency 2"}, timeout=60.0, **options)


class Failing(Table):
    def __init__(self, read: Callable[[], Any] | None = None, swap: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.fail_read, self.fail_swap = read, swap

    def read(self, keys: Any, timeout: float) -> Any:
        return self.fail_read() if self.fail_read else super().read(keys, timeout)

    def compare_and_swap(self, changes: Any, timeout: float) -> Any:
        return self.fail_swap() if self.fail_swap else super().compare_and_swap(changes, timeout)


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_an_exception_is_the_cause_of_the_error() -> None:
    broken = OSError("no such host")
    for store in (Failing(read=raising(broken)), Failing(swap=raising(broken))):
        policies = {"api": "5/hour"}
        with pytest.raises(StoreError, match=r"Failing\.\w+ failed: .*no such host") as caught:
            Limiter(store, policies=policies, timeout=0.3, on_store_error="raise").check("api", "a")
        assert caught.value.code == "store_unavailable"
        assert caught.value.__cause__ is broken
        assert Limiter(store, policies=policies, timeout=0.3).check("api", "a").source == "fallback"


def test_an_error_shows_no_secret() -> None:
    store = Failing(read=raising(OSError("cannot connect to postgres://app:hunter2@db")))
    with pytest.raises(StoreError) as caught:
        limiter_on(store, on_store_error="raise").check("api", "a")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "answer", "sentence"),
    [
        ("read", None, "None (NoneType): it must return a tuple of its clock"),
        ("read", (None, []), "0 answers to 1 questions"),
        ("read", (None, ["x"]), "Value(version, data)"),
        ("read", (None, [(1, "text")]), "data as bytes"),
        ("read", (None, [(1.5, b"x")]), "a version that is an int, a str or bytes"),
        ("read", ("12", [None]), "its clock in unix seconds"),
        ("read", (float("nan"), [None]), "its clock in unix seconds"),
        ("swap", (None, [False]), "True for a change that was done"),
        ("swap", (None, []), "0 answers to 1 questions"),
    ],
)
def test_a_wrong_answer_is_named(method: str, answer: Any, sentence: str) -> None:
    store = Failing(**{method: lambda: answer})
    with pytest.raises(StoreError) as caught:
        limiter_on(store, on_store_error="raise").check("api", "a")
    assert caught.value.code == "store_rejected"
    assert sentence in str(caught.value) and f"Failing.{'read' if method == 'read' else 'compare_and_swap'}" in str(
        caught.value
    )


def test_a_swap_that_did_not_happen_is_tried_again() -> None:
    tries = []

    class Busy(Table):
        def compare_and_swap(self, changes: Any, timeout: float) -> Any:
            tries.append(timeout)
            if len(tries) < 4:
                raise NotApplied("busy")
            return super().compare_and_swap(changes, timeout)

    limiter = limiter_on(Busy(), on_store_error="raise")
    assert limiter.check("api", "a").remaining == 4
    assert len(tries) == 4 and tries == sorted(tries, reverse=True)
    never = Limiter(
        Failing(swap=raising(NotApplied("busy"))), policies={"api": "5/hour"}, timeout=0.2, on_store_error="raise"
    )
    with pytest.raises(StoreError, match="busy"):
        never.check("api", "a")


def test_an_unknown_outcome_is_resolved_by_a_read() -> None:
    class Lossy(Table):
        lost = 0

        def compare_and_swap(self, changes: Any, timeout: float) -> Any:
            answer = super().compare_and_swap(changes, timeout)
            self.lost += 1
            if self.lost == 1:
                raise ConnectionError("the answer was lost")
            return answer

    limiter = limiter_on(Lossy(), on_store_error="raise")
    assert [limiter.check("api", "a").remaining for _ in range(2)] == [4, 3]


def test_threads_charge_exactly_the_limit() -> None:
    limiter = Limiter(Table(), policies={"api": "100/hour"}, timeout=30.0, deny_cache=0, on_store_error="raise")
    with ThreadPoolExecutor(64) as pool:
        admitted = list(
            pool.map(lambda number: sum(bool(limiter.check("api", f"k{number % 2}")) for _ in range(5)), range(64))
        )
    assert sum(admitted) == 200


def test_a_method_runs_on_the_thread_of_its_caller() -> None:
    seen = set()

    class Seen(Table):
        def read(self, keys: Any, timeout: float) -> Any:
            seen.add(threading.get_ident())
            return super().read(keys, timeout)

    limiter = limiter_on(Seen())
    for number in range(20):
        limiter.check("api", f"k{number}")
        limiter.acquire("api", f"k{number}", timeout=1.0)
    limiter.ping()
    limiter.clear_all()
    assert seen == {threading.get_ident()}


def test_holds_are_renewed_though_no_caller_waits() -> None:
    limiter = Limiter(Table(), policies={"holds": "concurrency 1 ttl 300ms"}, timeout=60.0, on_store_error="raise")
    with limiter.hold("holds", "a") as hold:
        time.sleep(0.7)
        assert not hold.lost
        assert limiter.peek("holds", "a").remaining == 0
    assert limiter.peek("holds", "a").remaining == 1


def test_a_store_that_hangs_ends_by_the_timeout() -> None:
    class Hanging(AsyncTable):
        async def read(self, keys: Any, timeout: float) -> Any:
            await asyncio.sleep(60)

    async def main() -> None:
        limiter = AsyncLimiter(Hanging(), policies={"api": "5/hour"}, timeout=0.2, on_store_error="raise")
        began = time.monotonic()
        with pytest.raises(StoreError) as caught:
            await limiter.check("api", "a")
        assert caught.value.code == "store_timeout"
        assert time.monotonic() - began < 5
        # The task of the method is cancelled.
        await asyncio.sleep(0.2)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_limiter_goes_on_in_a_second_loop() -> None:
    limiter = AsyncLimiter(
        AsyncTable(), policies={"api": "9/hour", "holds": "concurrency 2"}, timeout=60.0, on_store_error="raise"
    )

    async def main() -> list[int | None]:
        decisions = await asyncio.gather(*(limiter.check("api", "a") for _ in range(2)))
        assert await limiter.acquire("api", "a", timeout=1.0)
        async with limiter.hold("holds", "a"):
            pass
        await limiter.ping()
        return sorted(one.remaining for one in decisions)

    assert asyncio.run(main()) == [7, 8]
    assert asyncio.run(main()) == [4, 5]


def test_a_check_all_gives_back_if_one_key_refuses() -> None:
    store = Table()
    store.all_or_none = False
    limiter = Limiter(store, policies={"a": "5/hour", "b": "1/hour"}, timeout=60.0, on_store_error="raise")
    assert limiter.check_all([("a", "x"), ("b", "x")])
    assert not limiter.check_all([("a", "x"), ("b", "x")])
    assert limiter.peek("a", "x").remaining == 4

    class Counting(Table):
        calls = 0

        def compare_and_swap(self, changes: Any, timeout: float) -> Any:
            self.calls += 1
            return super().compare_and_swap(changes, timeout)

    counting = Counting()
    limiter = Limiter(counting, policies={"a": "5/hour", "b": "1/hour"}, timeout=60.0, on_store_error="raise")
    assert limiter.check_all([("a", "x"), ("b", "x")])
    assert counting.calls == 1


def test_without_a_scan_some_calls_are_an_error() -> None:
    class Bare:
        def __init__(self) -> None:
            table = Table()
            self.read, self.compare_and_swap = table.read, table.compare_and_swap

    limiter = limiter_on(Bare(), on_store_error="raise")
    for call in (limiter.clear_all, lambda: limiter.overrides("api")):
        with pytest.raises(ConfigError, match=r"Bare has no scan"):
            call()
    limiter.override("api", "a", "7/hour")
    assert limiter.check("api", "a").remaining == 6


def test_clear_all_and_overrides_scan() -> None:
    limiter = limiter_on(Table(), on_store_error="raise")
    limiter.override("api", "b", "7/hour")
    assert [own.key for own in limiter.overrides("api")] == ["b"]
    limiter.check("api", "a")
    limiter.clear_all()
    assert limiter.peek("api", "a").remaining == 5


def test_a_closed_limiter_calls_no_method() -> None:
    limiter = limiter_on(Table())
    limiter.check("api", "a")
    limiter.close()
    with pytest.raises(ClosedError):
        limiter.check("api", "a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_goes_on() -> None:
    limiter = limiter_on(Table(), on_store_error="raise")
    assert limiter.check("api", "a").remaining == 4
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if limiter.check("api", "a").remaining == 3 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert limiter.check("api", "a").remaining == 3


def test_ctrl_c_in_a_method_reaches_the_caller() -> None:
    limiter = limiter_on(Failing(read=raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        limiter.check("api", "a")
        time.sleep(1)


def test_a_web_service_on_a_store_of_its_own() -> None:
    from flask import Flask

    from tidegate.flask import Tidegate
    from web import call_wsgi

    app = Flask("shop")
    tg = Tidegate(app, limiter=Limiter(Table(), policies={"api": "1/hour"}, timeout=60.0, on_store_error="raise"))

    @app.get("/")
    @tg.limit("api")
    def page() -> str:
        return "ok"

    assert [call_wsgi(app, path="/").status for _ in range(2)] == [200, 429]


def test_processes_on_sqlite_charge_exactly_the_limit(tmp_path: Path) -> None:
    page = ROOT / "docs" / "production" / "your-own-store.md"
    (store,) = [block.code for block in blocks_of(page) if block.title == "sqlite_store.py"]
    program = tmp_path / "sqlite_store.py"
    count = """
if __name__ == "__main__":
    store = SqliteStore("limits.db")
    limiter = Limiter(store, policies={"api": "60/hour"}, timeout=30.0, deny_cache=0, on_store_error="raise")
    print("admitted", sum(bool(limiter.check("api", "a")) for _ in range(40)))
"""
    program.write_text(store + count, encoding="utf-8")
    command = [sys.executable, str(program)]
    running = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ended = [one.communicate(timeout=120)[0] for one in running]
    assert sum(int(one.rpartition("admitted ")[2]) for one in ended) == 60, ended


def test_the_store_of_the_page_has_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "production" / "your-own-store.md"
    (store,) = [block for block in blocks_of(page) if block.title == "sqlite_store.py"]
    verify(namespace_of([store], "")["SqliteStore"]("verified.db"))
