"""Keys for the limits of any web framework: whose request it is."""

from __future__ import annotations

from .web.keys import Key, claim, client_ip, header, user

__all__ = ["Key", "claim", "client_ip", "header", "user"]
