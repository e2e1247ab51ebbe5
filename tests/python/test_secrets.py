"""No piece of a secret in a store URL appears in a message, whatever characters the secret has."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tidegate import AsyncLimiter, ConfigError, Limit, Limiter, Policy, TidegateError, lint, rollout

# The places of a secret in a URL, right or by mistake. No server listens on port 1.
PLACES = [
    "redis://user:{}@127.0.0.1:1/0",
    "redis://:{}@127.0.0.1:1/0",
    "rediss://:{}@127.0.0.1:1?protocol=3",
    "valkey://u:{}@127.0.0.1:1/zero",
    "redis+unix://:{}@/nonexistent/redis.sock?db=1",
    "redis+sentinel://u:{}@127.0.0.1:1,127.0.0.1:2/mymaster/0?sentinel_password=x",
    "redis+sentinel://127.0.0.1:1/mymaster?sentinel_username=s&sentinel_password={}",
    "redis+cluster://:{}@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://:{}@127.0.0.1:1/7",
    "memory://u:{}@host?max_keys=10",
    "redis://127.0.0.1:1/0?password={}",
    "redis://127.0.0.1:1/0;password={}",
    "https://u:{}@127.0.0.1:1/0",
    "{}://127.0.0.1:1/0",
    "redis+{}://127.0.0.1:1/0",
    "redis:/u:{}@127.0.0.1:1/0",
    "u:{}@127.0.0.1:1/0",
]
# A piece of four characters with one of these can only come from the secret, so no message may have such a piece.
MARKS = "QXZJVKWY"
OTHERS = "89/?#@:&%=+ ,;[]{}$\\\"'<>|^`~!*().-_\té😀"
SURROGATE = "\ud800"


def secrets(cases: int) -> Iterator[tuple[str, str]]:
    """Yields secrets, and URLs with them, plain and escaped."""
    chance = random.Random(7)
    for _ in range(cases):
        secret = "".join(chance.choice(MARKS + OTHERS) for _ in range(chance.randrange(4, 24)))
        place = chance.choice(PLACES)
        yield secret, place.replace("{}", chance.choice((secret, quote(secret, safe=""))))


def pieces(secret: str) -> set[str]:
    windows = {secret[at : at + 4] for at in range(len(secret) - 3)}
    found = {window for window in windows if any(mark in window for mark in MARKS)}
    return found | {repr(window)[1:-1] for window in found}


def said(call: Callable[[], Any]) -> str:
    """Returns everything that a program may see of a call: its result, or its error in all printed forms."""
    try:
        return repr(call())
    except Exception as error:
        lines = traceback.format_exception_only(error)
        return " ".join([str(error), repr(error), *lines, repr(error.__cause__), repr(error.__context__)])


def used(url: str) -> Iterator[Callable[[], Any]]:
    """Yields the calls that might put a URL into a message."""
    other = "redis://127.0.0.1:1/9"

    def checked(store: Any) -> Any:
        with_store: Any = Limiter(store, timeout=0.02, on_store_error="raise")
        try:
            return repr(with_store), said(lambda: with_store.check("5/s", "k"))
        finally:
            with_store.close()

    async def checked_async() -> Any:
        limiter = AsyncLimiter(url, timeout=0.02, on_store_error="raise")
        try:
            return repr(limiter), await limiter.check("5/s", "k")
        finally:
            await limiter.close()

    yield lambda: checked(url)
    yield lambda: checked([url, other])
    yield lambda: checked([url, url])
    yield lambda: checked(rollout(url, other, 50))
    yield lambda: checked(rollout(other, url, 50))
    yield lambda: rollout(url, other, 50)
    yield lambda: asyncio.run(checked_async())
    yield lambda: Limiter(url + SURROGATE)
    yield lambda: Limiter([other, url + SURROGATE])
    yield lambda: rollout(url + SURROGATE, other, 1)
    yield lambda: Limiter(url.encode())  # type: ignore[arg-type]
    yield lambda: Limiter([url.encode()])  # type: ignore[list-item]
    yield lambda: Limiter(Path(url))  # type: ignore[arg-type]
    yield lambda: Limiter({"url": url})
    yield lambda: Limiter(key_secret=url + SURROGATE)
    yield lambda: Limiter(key_secret=[url])  # type: ignore[arg-type]
    if "://" in url or "@" in url:
        from tidegate.asgi import TidegateMiddleware
        from tidegate.fastapi import Tidegate as FastapiTidegate
        from tidegate.flask import Tidegate as FlaskTidegate
        from tidegate.limits import TidegateStorage

        yield lambda: FlaskTidegate(url)  # type: ignore[arg-type]
        yield lambda: FastapiTidegate(url)  # type: ignore[arg-type]
        yield lambda: TidegateMiddleware(lambda: None, "5/s", limiter=url)  # type: ignore[arg-type]
        yield lambda: TidegateMiddleware(lambda: None, "5/s", store=url)  # type: ignore[arg-type]
        yield lambda: TidegateStorage(f"tidegate+{url}")
        yield lambda: TidegateStorage(f"tidegate+{url}{SURROGATE}")
        yield lambda: FlaskTidegate(None, key_secret=url + SURROGATE)
        yield lambda: FlaskTidegate(None, headers=url)
        for option in ("prefix", "timeout", "on_store_error", "deny_cache", "max_waiting", "on_change", "clock"):
            yield lambda option=option: Limiter(**{option: url})  # type: ignore[misc]
            yield lambda option=option: Limiter(**{option: url + SURROGATE})  # type: ignore[misc]
    if "://" in url:
        yield lambda: Limiter.from_file(url)
        yield lambda: lint(url)
    if "://" in url or "@" in url[url.find(":") :]:
        yield lambda: Policy(url)
        yield lambda: Limit(url, 5, period=1.0)
        yield lambda: Limiter().check(url, "k")
        yield lambda: Limiter(policies={"p": url})
        yield lambda: Limiter(policies={"p": {"limits": "5/s", url: 1}})


def test_no_piece_of_a_secret_is_shown(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.DEBUG):
        for secret, url in secrets(150):
            shown = [said(call) for call in used(url)]
            for piece in pieces(secret):
                for text in shown:
                    assert piece not in text, f"{piece!r} of {url!r} is in {text}"
                assert piece not in caplog.text
            caplog.clear()


def test_no_piece_of_a_secret_in_a_file_or_the_environment_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for secret, url in secrets(150):
        monkeypatch.setenv("TIDEGATE_TEST_URL", url)
        for number, text in enumerate(
            ["store: ${TIDEGATE_TEST_URL}\npolicies: {}", f"store: {url}\npolicies: {{}}", f"store:\n- {url}\n- 5\n"]
        ):
            path = tmp_path / f"{number}.yaml"
            path.write_text(text, encoding="utf-8")
            shown = said(lambda path=path: Limiter.from_file(path))  # type: ignore[misc]
            for piece in pieces(secret):
                assert piece not in shown, f"{piece!r} of {url!r} is in {shown}"


@pytest.mark.parametrize(
    "url", ["redis://user:12/SECRET@h:1/0", "redis+sentinel://h/m?sentinel_password=a&SECRET", "redis://u:1?SECRET@h"]
)
def test_the_message_says_to_escape(url: str) -> None:
    with pytest.raises(TidegateError, match="percent-encode") as caught:
        Limiter(url)
    assert caught.value.code == "config_invalid"
    assert "SECRET" not in repr(caught.value)


def test_a_key_secret_with_half_a_surrogate_pair_is_refused_without_showing_it() -> None:
    from tidegate.flask import Tidegate

    made: list[Callable[..., Any]] = [Limiter, AsyncLimiter, lambda **options: Tidegate(None, **options)]
    for make in made:
        with pytest.raises(ConfigError, match="key_secret has half a surrogate pair") as caught:
            make(key_secret=f"TOPSECRET-0123456789{SURROGATE}")
        assert "TOPSECRET" not in "".join(traceback.format_exception_only(caught.value))
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
