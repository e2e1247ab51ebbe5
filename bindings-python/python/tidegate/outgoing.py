"""Reads the limits that the responses of other services announce.

With any client::

    response = httpx.get("https://api.example.com/")
    for observation in Observation.from_headers(response.headers, status=response.status_code):
        print(observation)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ._tidegate import Observation

__all__ = ["Observation", "SettleReader"]


@runtime_checkable
class SettleReader(Protocol):
    """An object that `settle` of a transport may return. It reads the body of a response while the caller gets it.

    The transport feeds it each chunk in order, with its Content-Encoding undone, and ends it once, when the body has
    ended or was given up. It should be quick and keep little, because it runs where the caller reads.
    """

    def feed(self, chunk: bytes, /) -> None:
        """Reads the next chunk of the body."""

    def end(self) -> int | Mapping[str, int] | None:
        """Returns the actual cost: a number, or numbers by the names of units. None leaves the charge as it is."""
