"""HTTP methods, as limits count them."""

from __future__ import annotations

from typing import Any

from .._shown import shown
from .._tidegate import nearest
from ..errors import ConfigError

# IANA's registry, and PURGE of caches.
_NAMES = """
ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR
MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT
SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL
"""
KNOWN = frozenset(_NAMES.split())
# The budget of methods that no server knows: a client may make up as many as it likes.
OTHER = "OTHER"


def limited_methods(given: Any) -> frozenset[str] | None:
    """The option `methods`."""
    if given is None:
        return None
    if isinstance(given, str):
        raise ConfigError(f"methods is a list such as [{given!r}], not a text")
    try:
        names = [method.upper() for method in given]
    except (TypeError, AttributeError):
        raise ConfigError(f"methods is a list such as ['POST'], not {shown(given)}") from None
    if not names:
        raise ConfigError("methods is an empty list, which limits no request: leave it out to limit all methods")
    for name in names:
        if name not in KNOWN:
            meant = nearest(name, sorted(KNOWN))
            hint = f": did you mean {meant!r}?" if meant else ""
            raise ConfigError(f"methods has {shown(name)}, which is no HTTP method{hint}")
    # Servers answer HEAD with the view of GET.
    return frozenset([*names, "HEAD"] if "GET" in names else names)


def budget_of(method: str | None) -> str:
    """The name of the budget that a method counts for. A websocket begins with a GET."""
    if method is None or method == "HEAD":
        return "GET"
    return method if method in KNOWN else OTHER
