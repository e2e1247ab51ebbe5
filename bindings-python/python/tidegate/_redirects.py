"""Finds the calls that follow a redirect to another origin.

A client that follows redirects sends each as a separate request, in the same thread or task, without a mark.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import NamedTuple
from urllib.parse import urljoin

from ._origin import origin_of_url


class MadeFor(NamedTuple):
    """An origin, and the key of a call to it."""

    origin: str
    key: str

    def is_of_another(self, origin: str, key: str) -> bool:
        """True if a call that follows the redirect goes to another origin with the same key."""
        return origin != self.origin and key == self.key


# The sender of the request, the origin that its redirect leads to, and the origin and key of the first call.
_PENDING: ContextVar[tuple[object, str, MadeFor] | None] = ContextVar("redirect", default=None)


def leads_on(sender: object, url: str, location: str, made_for: MadeFor) -> None:
    """Remembers where the redirect of a request leads."""
    # The client raises its own error for a wrong URL.
    with contextlib.suppress(ValueError):
        _PENDING.set((sender, origin_of_url(urljoin(url, location)), made_for))


def followed(sender: object, url: str) -> MadeFor | None:
    """Returns the first call of the redirect that this request follows, or None if it follows none."""
    found = _PENDING.get()
    if found is None or found[0] is not sender:
        return None
    _PENDING.set(None)
    return found[2] if found[1] == origin_of_url(url) else None
