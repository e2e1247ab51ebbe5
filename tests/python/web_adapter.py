"""The common parts of the adapters of all web layers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from web import SeenResponse

# The options of the limiter. All others are options of the limit.
LIMITER_OPTIONS = {"limiter", "store", "policies", "prefix", "timeout", "on_store_error", "deny_cache", "clock"}
# Here `layer_key` is the key of the layer. Its limits may have other keys.
LAYER_OPTIONS = LIMITER_OPTIONS | {"layer_key"}
numbers = itertools.count()

# A view returns a status, and a body or the parts of a stream. It may take the Decision about its request.
View = Callable[..., "tuple[int, bytes | list[Any]]"]


@dataclass
class LimitedApp:
    """An application with one view, and how to call it."""

    app: Any
    call: Callable[..., SeenResponse]
    get: Callable[..., SeenResponse] = field(init=False)

    def __post_init__(self) -> None:
        self.get = lambda **more: self.call(self.app, **more)


def layer_options(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the options of the layer out of all options."""
    return {name.removeprefix("layer_"): options.pop(name) for name in LAYER_OPTIONS & options.keys()}


def simple() -> tuple[int, bytes]:
    return 200, b"ok"


def run(view: View, decision: Any) -> Any:
    return view(decision) if inspect.signature(view).parameters else view()


class Adapter:
    """Makes applications of one framework."""

    name = ""
    # True if functions that are given as options may be async.
    awaits = False
    # Reads a header from the request that a function gets.
    header: Callable[[Any, str], str | None]
    method: Callable[[Any], str]
    # A response that on_denied may return.
    denial: Callable[[], Any]
    # The same without a status.
    plain_denial: Callable[[], Any]

    def make(self, policy: Any, view: View = simple, **options: Any) -> LimitedApp:
        raise NotImplementedError


def stream(parts: list[Any]) -> Iterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part


async def astream(parts: list[Any]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part() if callable(part) else part
