"""The cost of calls to large language models, for the clients of OpenAI, Anthropic and compatible services.

A preset is a dict of options for a transport::

    from openai import OpenAI
    from tidegate.httpx2 import PacedTransport
    from tidegate.llm import openai_preset

    policy = "500 requests/minute; 90000 tokens/minute"
    client = OpenAI(http_client=httpx2.Client(transport=PacedTransport(limiter, policy=policy, **openai_preset())))

Each call is charged the estimated cost of its request, and settled to the usage in its response. A refusal becomes a
response with status 429, which the clients raise like a 429 of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypedDict
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ._cost import CostByPolicy
from ._shown import shown
from ._tidegate import TokenEstimate, TokenEstimator, UsageReader
from .errors import ConfigError
from .outgoing import SettleReader

__all__ = ["LlmPreset", "Tokenizer", "anthropic_preset", "openai_preset"]

Unit: TypeAlias = Literal["tokens", "input-tokens", "output-tokens"]
# How a service counts the tokens of an answer: their bound when the request arrives, or as they are used.
OutputRule: TypeAlias = Literal["bound", "used"]
# Returns the number of tokens of a text, or something of that length, such as a list of them.
Tokenizer: TypeAlias = Callable[[str], "int | Sized"]

_UNITS = ("tokens", "input-tokens", "output-tokens")


class _Request(Protocol):
    @property
    def url(self) -> Any: ...


class _Response(Protocol):
    @property
    def request(self) -> Any: ...
    @property
    def status_code(self) -> int: ...


class LlmPreset(TypedDict, total=False):
    """Options of a transport."""

    cost: Callable[[Any], dict[str, int] | int]
    settle: Callable[[Any], SettleReader | None]
    respond: bool
    learn: bool
    priority: str | Callable[[Any], str | None]


def openai_preset(
    *,
    tokenizer: Tokenizer | None = None,
    units: tuple[Unit, ...] | None = None,
    output: OutputRule = "bound",
    default_output: int = 1024,
    priority: str | Callable[[Any], str | None] | None = None,
    learn: bool = True,
) -> LlmPreset:
    """Options for a client of OpenAI: chat completions, responses, embeddings and completions.

    - `tokenizer`: a function that returns the tokens of a text, or their number. Without it a token is four bytes,
      until calls have shown the real ratio.
    - `units`: the units that are charged, some of "tokens", "input-tokens" and "output-tokens". The default is those
      that the policy of the transport counts. `requests` need no name.
    - `output`: "bound" counts the most tokens that a request allows for its answer, when it arrives, as OpenAI does.
      Choose "used" for a compatible service that counts the tokens that were used.
    - `default_output`: the tokens of an answer if its request has no bound, until calls have shown the real number.
    - `priority`: the class of the calls, or a function of the request.
    - `learn`: True learns the limits that responses announce, as in the options of the transport.
    """
    return _preset("openai", tokenizer, ("tokens",), units, output, default_output, priority, learn)


def anthropic_preset(
    *,
    tokenizer: Tokenizer | None = None,
    units: tuple[Unit, ...] | None = None,
    output: OutputRule = "used",
    default_output: int = 1024,
    priority: str | Callable[[Any], str | None] | None = None,
    learn: bool = True,
) -> LlmPreset:
    """Options for a client of Anthropic: messages.

    You can give the options of `openai_preset`. Anthropic counts input and answers separately and answers as they are
    used, and does not count tokens from a cache. The usage of answers is learned for each model. Until then it is
    `default_output`, or the bound of the request if that is less.
    """
    usual: tuple[Unit, ...] = ("input-tokens", "output-tokens")
    return _preset("anthropic", tokenizer, usual, units, output, default_output, priority, learn)


def _preset(
    service: str,
    tokenizer: Tokenizer | None,
    usual: tuple[Unit, ...],
    units: tuple[Unit, ...] | None,
    output: OutputRule,
    default_output: int,
    priority: str | Callable[[Any], str | None] | None,
    learn: bool,
) -> LlmPreset:
    if tokenizer is not None and not callable(tokenizer):
        raise ConfigError(f"tokenizer cannot be {shown(tokenizer)}: it must be a function of a text")
    if units is not None and (isinstance(units, str) or not units or any(unit not in _UNITS for unit in units)):
        raise ConfigError(f"units cannot be {shown(units)}: give some of {', '.join(_UNITS)}, as in ('tokens',)")
    if isinstance(default_output, bool) or not isinstance(default_output, int) or default_output < 0:
        raise ConfigError(f"default_output cannot be {shown(default_output)}: it must be a whole number of tokens")
    calls = _Calls(TokenEstimator(service, output, min(default_output, 2**53 - 1)), tokenizer, units or usual, units)
    preset = LlmPreset(cost=calls, settle=calls.settle, respond=True, learn=learn)
    if priority is not None:
        preset["priority"] = priority
    return preset


@dataclass(eq=False)
class _Calls(CostByPolicy):
    """The calls of a preset. Keeps the charge of each call until its response has come.

    Calling the object returns the cost of a request.
    """

    _estimator: TokenEstimator
    _tokenizer: Tokenizer | None
    _usual: tuple[str, ...]
    _units: tuple[str, ...] | None
    _of_policy: WeakKeyDictionary[Any, tuple[str, ...]] = field(default_factory=WeakKeyDictionary)
    _charged: WeakKeyDictionary[Any, tuple[TokenEstimate, tuple[str, ...]]] = field(default_factory=WeakKeyDictionary)

    def units_of(self, counted: Collection[str]) -> tuple[str, ...]:
        return self._units or tuple(unit for unit in _UNITS if unit in counted)

    def counts(self, request: _Request, counted: Collection[str]) -> None:
        self._of_policy[request] = self.units_of(counted)

    def __call__(self, request: _Request) -> dict[str, int] | int:
        units = self._of_policy.pop(request, self._usual)
        estimate = self._estimator.estimate(_path(request), _body(request), self._tokenizer)
        if estimate is not None:
            self._charged[request] = estimate, units
        # A policy that counts no tokens counts the request.
        return _units(units, (0, 0) if estimate is None else estimate.tokens) or 1

    def settle(self, response: _Response) -> SettleReader | None:
        estimate, units = self._charged.pop(response.request, (None, ()))
        return None if estimate is None else _UsedTokens(self._estimator, estimate, units, response.status_code)


class _UsedTokens:
    """Reads the tokens that a call has used from its response."""

    def __init__(self, estimator: TokenEstimator, estimate: TokenEstimate, units: tuple[str, ...], status: int) -> None:
        self._estimator, self._estimate, self._units, self._status = estimator, estimate, units, status
        self._reader = UsageReader()

    def feed(self, chunk: bytes, /) -> None:
        self._reader.feed(chunk)

    def end(self) -> dict[str, int] | None:
        tokens = self._estimator.settle(self._estimate, self._reader, self._status)
        return (_units(self._units, tokens) or None) if tokens is not None else None


def _units(units: tuple[str, ...], tokens: tuple[int | None, int | None]) -> dict[str, int]:
    """Returns the units with a known number of tokens."""
    read, answered = tokens
    both = None if read is None or answered is None else min(read + answered, 2**53 - 1)
    known = {"tokens": both, "input-tokens": read, "output-tokens": answered}
    return {unit: number for unit in units if (number := known[unit]) is not None}


def _path(request: _Request) -> str:
    path = getattr(request.url, "path", None)
    return path if isinstance(path, str) else urlsplit(str(request.url)).path


def _body(request: _Request) -> bytes:
    """Returns the body of a request, or nothing for a stream, which can be read only once."""
    try:
        body = request.content  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        # httpx raises a RuntimeError for a body that was not read. In requests the body has another name.
        body = getattr(request, "body", None)
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else b""
