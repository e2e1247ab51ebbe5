"""Keys for the limits of any web framework: the client of a request, and the place where a notation counts."""

from __future__ import annotations

from ._tidegate import placed_key
from .web.keys import Key, claim, client_ip, fixed, header, user

__all__ = ["Key", "claim", "client_ip", "fixed", "header", "placed_key", "user"]
