"""Checks keys, costs and metadata that are written once for many calls, at the place where they are written."""

from __future__ import annotations

import functools
from typing import Any

from ._tidegate import Limiter


@functools.cache
def empty_limiter() -> Limiter:
    """Returns a limiter without policies. Its calls raise for wrong arguments as those of any other limiter do."""
    return Limiter()


def check_constants(*, key: Any = "", cost: Any = 1, meta: Any = None) -> None:
    """Raises for a wrong constant, with the error that a call would raise."""
    empty_limiter().peek("1/s", key, cost)
    if meta is not None:
        empty_limiter().check("1/s", "", meta=meta)
