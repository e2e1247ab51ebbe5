"""The origin of a request, which is the default key of outgoing calls."""

from __future__ import annotations

import functools
import re
from typing import Any

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_AUTHORITY = re.compile(r"(?:[^/?#]*@)?([^/?#]*)")


def origin_of(request: Any) -> str:
    """Returns the origin of a request: scheme, host, and the port unless it is the default port."""
    return origin_of_url(str(request.url))


def origin_of_url(url: str) -> str:
    """Returns the origin of a URL."""
    path = url.find("/", url.find("//") + 2)
    return _origin_of(url if path < 0 else url[:path])


@functools.lru_cache(256)
def _origin_of(url: str) -> str:
    scheme, _, rest = url.partition("://")
    scheme, found = scheme.lower(), _AUTHORITY.match(rest)
    host = found[1].lower() if found else ""
    return f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}"
