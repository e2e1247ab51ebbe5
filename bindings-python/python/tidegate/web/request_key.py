"""The key under which a request counts: text, at the place of its limit."""

from __future__ import annotations

from typing import Any

from .._shown import shown
from .._tidegate import placed_key
from ..errors import KeyInvalid
from .bound_limit import LimitEntry
from .keys import UnusableKey


def checked_key(entry: LimitEntry, key: Any) -> str:
    """Returns the key; raises when it is no text."""
    if isinstance(key, str):
        return key
    found = "nothing (None)" if key is None else shown(key)
    raise KeyInvalid(f"the key function {entry.name} returned {found}: a key is text (str)")


def placed(entry: LimitEntry, key: str, method: str | None = None) -> str:
    """The key under which an entry counts. It raises for a key that is no valid text."""
    try:
        return placed_key(entry.resolved.place, key, method)
    except KeyInvalid as error:
        raise unusable(error) from None


def unusable(error: KeyInvalid) -> KeyInvalid:
    """The error of a limiter about a key that is text: its client has made it so."""
    return UnusableKey(error.message)
