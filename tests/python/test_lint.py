"""`lint` of notations, of policies in code and of files, and the warnings that loading a file logs."""

from __future__ import annotations

import time
from collections import UserDict
from pathlib import Path

import pytest

from tidegate import AsyncLimiter, Limit, Limiter, Policy, PolicyError, lint, rollout

USELESS = "10/10s; 600/600s"
OLDER = "limits:\n  - {name: auth.createToken, config: [{limit: 20, period: 60}, {limit: 5, period: '3'}]}\n"


def test_a_notation_has_the_warnings_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.yaml"
    path.write_text(f"policies:\n  login: {USELESS}\n")
    (in_file,) = lint(path)
    assert (in_file.file, in_file.line) == (str(path), 2)
    (in_text,) = lint(USELESS)
    assert (in_text.message, in_text.file, in_text.line, in_text.column) == (in_file.message, None, 1, 9)
    assert in_file.column == len("  login: ") + in_text.column
    for source in (Policy(USELESS), {"login": USELESS}, UserDict(login=Policy(USELESS))):
        (warning,) = lint(source)  # type: ignore[arg-type]
        assert warning.message == in_file.message
        assert (warning.file, warning.line, warning.column) == (None, None, None)
    (warning,) = Policy(USELESS, name="login").lint()
    assert (warning.policy, warning.message) == ("login", in_file.message)
    assert str(warning) == f"login: {in_file.message}"


def test_what_is_fine_has_no_warning() -> None:
    for source in ("20/minute; 5/3s", Policy("5/s"), {"a": "5/s", "b": {"limits": "5/s", "journal": 5}}, {}):
        assert lint(source) == []
    assert Policy([Limit("sliding-window", 100, period=1.0, precision=10)]).lint() == []


def test_policies_by_name_are_compared() -> None:
    (warning,) = lint({"create-token": "5/s", "CreateToken": "5/s"})
    assert "differs from `create-token` only in case" in warning.message


def test_what_is_not_valid_is_an_error(tmp_path: Path) -> None:
    for source in ("5/minuet", "missing.yaml", str(tmp_path), "policies", {"a": "5/minuet"}, {5: "5/s"}):
        with pytest.raises(PolicyError):
            lint(source)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="did you mean `minute`"):
        lint("20/minuet")
    for wrong in (5, None, ["5/s"]):
        with pytest.raises(TypeError):
            lint(wrong)  # type: ignore[arg-type]


def test_an_older_file_is_read_and_lint_offers_the_new_form(tmp_path: Path) -> None:
    path = tmp_path / "older.yaml"
    path.write_text(OLDER)
    limiter = Limiter.from_file(path)
    decision = limiter.check("auth.createToken", "a")
    assert [(one.limit, one.period) for one in decision.limits] == [(20, 60.0), (5, 3.0)]
    (warning,) = lint(path)
    assert "`auth.createToken: 20/minute; 5/3s`" in warning.message and warning.line == 2


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_loading_a_file_logs_its_warnings_once(
    kind: type[Limiter] | type[AsyncLimiter], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tidegate.yaml"

    def logged() -> list[str]:
        # A thread writes the log, so lines of an earlier test may arrive here.
        found = [one.getMessage() for one in caplog.records if one.name == "tidegate" and one.levelname == "WARNING"]
        return [message for message in found if str(path) in message]

    def soon(count: int) -> None:
        deadline = time.monotonic() + 20
        while len(logged()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    path.write_text(f"policies:\n  login: {USELESS}\n")
    limiter = kind.from_file(path)
    soon(1)
    assert len(logged()) == 1 and f"{path}:2:" in logged()[0] and "never decides anything" in logged()[0]
    path.write_text("policies:\n  login: 0/s\n")
    if isinstance(limiter, Limiter):
        limiter.reload()
        soon(2)
        assert len(logged()) == 2 and "always denies" in logged()[1]


def test_a_rollout_and_shards_in_a_file(tmp_path: Path, redis_url: str, prefix: str) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text(
        f'[store.rollout]\nfrom = "{redis_url}"\nto = "${{NEW_URL:-{redis_url}?protocol=3}}"\npercent = 5\n'
        '[policies]\nlogin = "2/hour"\n'
    )
    with Limiter.from_file(path, prefix=prefix, timeout=5.0) as limiter:
        assert limiter.check("login", "a").source == "store"
        limiter.set_rollout(100.0)
    # The argument `store` replaces the rollout of the file.
    with (
        Limiter.from_file(path, store="memory://", prefix=prefix) as limiter,
        pytest.raises(Exception, match="rollout"),
    ):
        limiter.set_rollout(100.0)
    given = rollout(redis_url, f"{redis_url}?protocol=3", 0)
    with Limiter.from_file(path, store=given, prefix=prefix, timeout=5.0) as limiter:
        limiter.set_rollout(1.0)
    other = redis_url.replace("127.0.0.1", "localhost")
    path.write_text(f'store = ["{redis_url}", "{other}"]\n[policies]\nlogin = "2/hour"\n')
    with Limiter.from_file(path, prefix=prefix, timeout=5.0) as limiter:
        assert limiter.check("login", "b").source == "store"
    path.write_text('[policies]\n[store.rollout]\nfrom = "redis://:hunter2@h"\nto = 5\npercent = 5\n')
    with pytest.raises(PolicyError, match=r":4:6: `to` must be a URL") as caught:
        Limiter.from_file(path)
    assert "hunter2" not in str(caught.value)
