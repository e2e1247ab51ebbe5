"""Shows wrong arguments in messages: short, without secrets, and never as bytes."""

from __future__ import annotations

# The most characters of a text that a message shows.
MOST = 64


def shortened(text: str) -> str:
    """Returns a text in quotes. A long text is cut, and its length follows."""
    if len(text) <= MOST:
        return str.__repr__(text)
    return f"{str.__repr__(text[:MOST])}… ({len(text)} characters)"


def shown(given: object) -> str:
    """Returns a text, number or None with its type. Any other object may hold secrets, so only its type is shown."""
    kind = type(given).__name__
    if isinstance(given, str):
        return f"{'a URL' if _may_be_url(given) else shortened(given)} ({kind})"
    if given is None or isinstance(given, (bool, float)):
        return f"{given!r} ({kind})"
    if isinstance(given, int):
        # Python refuses to write very long numbers.
        return f"{given!r} ({kind})" if given.bit_length() < 200 else f"a number of {given.bit_length()} bits ({kind})"
    return f"an object of type {kind}"


def _may_be_url(text: str) -> bool:
    """True if a text may be the URL of a store, which may hold a password."""
    return "://" in text or "@" in text.partition(":")[2]
