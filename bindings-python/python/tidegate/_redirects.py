"""Which calls follow a redirect to another origin.

A client that follows redirects sends each as a request of its own, in the same thread or task, and does not say so.
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
        """Whether a call that follows its redirect has its key at another origin."""
        return origin != self.origin and key == self.key


# What sent the request, where its redirect leads, and what the key was made for.
_PENDING: ContextVar[tuple[object, str, MadeFor] | None] = ContextVar("redirect", default=None)


def leads_on(sender: object, url: str, location: str, made_for: MadeFor) -> None:
    """Remembers where the redirect of a request leads."""
    # The client says what is wrong with a URL.
    with contextlib.suppress(ValueError):
        _PENDING.set((sender, origin_of_url(urljoin(url, location)), made_for))


def followed(sender: object, url: str) -> MadeFor | None:
    """Whose redirect the next request follows; None where it follows none."""
    found = _PENDING.get()
    if found is None or found[0] is not sender:
        return None
    _PENDING.set(None)
    return found[2] if found[1] == origin_of_url(url) else None
