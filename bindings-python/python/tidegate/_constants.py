"""Keys, costs and metadata that are written once for many calls, checked where they are written."""

from __future__ import annotations

import functools
from typing import Any

from ._tidegate import Limiter


@functools.cache
def empty_limiter() -> Limiter:
    """A limiter without policies: its calls say of an argument what those of any other say."""
    return Limiter()


def check_constants(*, key: Any = "", cost: Any = 1, meta: Any = None) -> None:
    """Raises what a call raises that is given these."""
    empty_limiter().peek("1/s", key, cost)
    if meta is not None:
        empty_limiter().check("1/s", "", meta=meta)
