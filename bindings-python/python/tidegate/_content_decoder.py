"""Undoes the Content-Encoding of a body that passes by."""

from __future__ import annotations

import contextlib
import importlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# The most bytes that one chunk may decode to, so that a small chunk cannot fill the memory.
_MOST = 1 << 20


class ContentDecoder(Protocol):
    """Undoes the Content-Encoding of a body."""

    def decode(self, chunk: bytes, /) -> bytes:
        """Returns the next chunk of the body decoded, or nothing if the body is damaged."""


class _Plain:
    def decode(self, chunk: bytes, /) -> bytes:
        return chunk


class _Guarded:
    """Wraps the decoder of a library. It reads nothing more after the first error."""

    def __init__(self, decode: Callable[[bytes], bytes]) -> None:
        self._decode: Callable[[bytes], bytes] | None = decode

    def decode(self, chunk: bytes, /) -> bytes:
        if self._decode is None:
            return b""
        try:
            return self._decode(chunk)
        except Exception:
            # Each library has its own errors. The caller reads the same bytes and gets the error of its client.
            self._decode = None
            return b""


class _Zlib:
    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inner = zlib.decompressobj(bits)

    def __call__(self, chunk: bytes) -> bytes:
        said = b""
        while chunk and len(said) < _MOST:
            said += self._inner.decompress(chunk, _MOST)
            chunk = self._inner.unconsumed_tail
            if self._inner.eof:
                chunk = self._inner.unused_data
                self._inner = zlib.decompressobj(self._bits)
        if chunk:
            raise ValueError("a chunk says too much")
        return said


def _deflate() -> Callable[[bytes], bytes]:
    inner: list[_Zlib] = []

    def decode(chunk: bytes) -> bytes:
        if not inner and chunk:
            # RFC 9110 means the zlib format. Some servers send the raw data inside of it.
            inner.append(_Zlib(zlib.MAX_WBITS if chunk[0] & 0x0F == 8 else -zlib.MAX_WBITS))
        return inner[0](chunk) if inner else b""

    return decode


def _module(*names: str) -> Any:
    """Returns the first module that is installed, or None."""
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _brotli() -> Callable[[bytes], bytes] | None:
    if (module := _module("brotli", "brotlicffi")) is None:
        return None
    inner: Any = module.Decompressor()
    decode: Callable[[bytes], bytes] = inner.process if hasattr(inner, "process") else inner.decompress
    return decode


def _zstd() -> Callable[[bytes], bytes] | None:
    if (module := _module("compression.zstd", "backports.zstd", "zstandard")) is None:
        return None
    inner: Any = module.ZstdDecompressor()
    # The decompressor of `zstandard` itself takes a whole body.
    decode: Callable[[bytes], bytes] = (inner.decompressobj() if hasattr(inner, "decompressobj") else inner).decompress
    return decode


_CODINGS: dict[str, Callable[[], Callable[[bytes], bytes] | None]] = {
    "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def decoder(headers: Mapping[str, str]) -> ContentDecoder | None:
    """Returns a decoder for a response with these headers. Their names must ignore case.

    Returns None if the body cannot be decoded: the coding has no module here, or there are several codings.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return _Plain()
    make = _CODINGS.get(coding)
    decode = None if make is None else make()
    return None if decode is None else _Guarded(decode)
