"""The table of errors that all languages share, and for each a call that raises it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate
from client import Servers
from paths import ROOT
from tidegate import (
    ClosedError,
    ConfigError,
    Decision,
    KeyInvalid,
    Limiter,
    PolicyError,
    RateLimited,
    StoreError,
    TidegateError,
    errors,
)

TABLE = json.loads((ROOT / "tests" / "errors.json").read_text())
SECRET = "s3cr3t"


def closed() -> None:
    limiter = Limiter()
    limiter.close()
    limiter.check("1/s", "k")


def silent() -> None:
    with Servers("single") as servers:
        limiter = Limiter(servers.url, on_store_error="raise", timeout=2.0)
        limiter.ping()
        servers.stop()
        try:
            limiter.ping()
        finally:
            servers.cont()


def full() -> None:
    with Servers("single") as servers:
        limiter = Limiter(servers.url, on_store_error="raise", timeout=5.0)
        servers.command("CONFIG", "SET", "maxmemory", "1")
        limiter.check("1/s", "k")


PROVOKED: dict[str, Callable[[], object]] = {
    "policy_invalid": lambda: tidegate.Policy("20/fortnight"),
    "policy_unknown": lambda: Limiter(policies={"login": "1/s"}).check("logn", "k"),
    "cost_invalid": lambda: Limiter().check("1/s", "k", 0),
    "key_invalid": lambda: Limiter().check("1/s", "k" * 70_000),
    "config_invalid": lambda: Limiter("ftp://localhost"),
    "store_unavailable": lambda: Limiter(f"redis://:{SECRET}@127.0.0.1:1/0", on_store_error="raise").ping(),
    "store_timeout": silent,
    "store_rejected": full,
    "closed": closed,
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["code"])
def test_every_code_has_its_class(row: dict[str, str]) -> None:
    kind = getattr(tidegate, row["python"])
    assert issubclass(kind, TidegateError)
    with pytest.raises(kind) as caught:
        PROVOKED[row["code"]]()
    assert type(caught.value) is kind
    assert caught.value.code == row["code"]
    assert caught.value.message == str(caught.value)
    assert SECRET not in str(caught.value)


def test_every_exception_is_in_the_table_and_has_one_base() -> None:
    assert PROVOKED.keys() == {row["code"] for row in TABLE}
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {getattr(tidegate, row["python"]) for row in TABLE} | {RateLimited, TidegateError} == known
    assert all(issubclass(kind, TidegateError) for kind in known)
    assert {kind.__name__ for kind in known} == set(errors.__all__) <= set(tidegate.__all__)


def test_a_policy_error_has_the_position_in_a_text() -> None:
    for provoke in (tidegate.Policy, lambda text: Limiter().check(text, "k")):
        with pytest.raises(PolicyError) as caught:
            provoke("20/minute; 5/fortnight")
        error = caught.value
        assert (error.line, error.column, error.file) == (1, 14, None)
        assert error.text == "20/minute; 5/fortnight"
        assert "fortnight" in error.message


def test_a_policy_error_has_the_position_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.yaml"
    path.write_text("policies:\n  login: 20/minute\n  api: 5/fortnight\n")
    with pytest.raises(PolicyError) as caught:
        Limiter.from_file(path)
    error = caught.value
    assert (error.file, error.line, error.text) == (str(path), 3, None)
    assert error.column is not None and error.column > 1


def test_errors_can_be_pickled_and_copied() -> None:
    with pytest.raises(PolicyError) as caught:
        tidegate.Policy("nonsense")
    for again in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert type(again) is PolicyError
        assert (str(again), again.code, again.column) == (str(caught.value), caught.value.code, caught.value.column)
    for error in (StoreError("gone", "store_timeout"), ConfigError("no"), ClosedError("shut"), KeyInvalid("key")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.code) == (type(error), str(error), error.code)


def test_rate_limited_carries_the_decision() -> None:
    limiter = Limiter(policies={"exports": "concurrency 1"})
    with limiter.hold("exports", "alice"), pytest.raises(RateLimited) as caught, limiter.hold("exports", "alice"):
        pass
    error = caught.value
    assert error.code == "rate_limited"
    assert isinstance(error.decision, Decision)
    assert not error.decision
    assert "'exports'" in str(error) and "'alice'" in str(error)


@pytest.mark.parametrize("policy", [5, None, b"1/s", ["1/s"]])
def test_a_wrong_policy_argument_raises(policy: object) -> None:
    with pytest.raises(TypeError, match="a policy must be a str or a Policy"):
        Limiter().check(policy, "k")  # type: ignore[arg-type]


def test_a_wrong_key_raises() -> None:
    with pytest.raises(KeyInvalid, match=r"text \(str\), not 5 \(int\)"):
        Limiter().check("1/s", 5)  # type: ignore[arg-type]
    with pytest.raises(KeyInvalid, match="UTF-8"):
        Limiter().check("1/s", "\ud800")


@pytest.mark.parametrize(
    "options",
    [
        {"on_store_error": "panic"},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": 0.0},
        {"deny_cache": -1.0},
        {"deny_cache": float("inf")},
        {"prefix": ""},
        {"store": []},
    ],
    ids=str,
)
def test_wrong_options_raise(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Limiter(**options)  # type: ignore[arg-type]


def test_a_password_is_never_shown() -> None:
    limiter = Limiter(f"redis://user:{SECRET}@127.0.0.1:1/0", on_store_error="raise")
    assert SECRET not in repr(limiter) and "127.0.0.1" in repr(limiter)
    with pytest.raises(StoreError) as caught:
        limiter.check("1/s", "k")
    assert SECRET not in repr(caught.value)
    with pytest.raises(ConfigError) as wrong:
        Limiter(f"redis://user:{SECRET}@127.0.0.1:1/0?nonsense=1")
    assert SECRET not in repr(wrong.value)
