"""Keys for the limits of any web framework: whose request it is, and where a notation counts."""

from __future__ import annotations

from ._tidegate import placed_key
from .web.keys import Key, claim, client_ip, fixed, header, user

__all__ = ["Key", "claim", "client_ip", "fixed", "header", "placed_key", "user"]
