#!/usr/bin/env python3
"""Makes `_tidegate.pyi` from the stubs that maturin or pyo3-introspection read from the compiled module.

    python scripts/stubs.py GENERATED         writes it
    python scripts/stubs.py GENERATED --check fails when the committed one differs

Docstrings and most types come from Rust. This program adds the rest, which pyo3 cannot express: annotations lose their
quotes, names get their imports, and tuples get the types of their elements.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "bindings-python" / "python" / "tidegate" / "_tidegate.pyi"
HEAD = '''# Made by scripts/stubs.py from the compiled module: `make stubs` writes it anew.

"""The compiled part of the package `tidegate`; import its names from there."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import GenericAlias
from typing import Any, Final, Generic, Literal, NoReturn, final

from typing_extensions import Unpack

from ._decorator import Decorator
from ._hold import Holding
from ._options import LimiterOptions, LimiterSettings, Name, PolicyOptions
from .stores import AsyncKeyValueStore, KeyValueStore
'''
# By class and member: the type that pyo3 gives, and the exact one.
EXACT = {
    ("Decision", "limits"): ("tuple", "tuple[LimitState, ...]"),
    ("Decision", "decisions"): ("tuple", "tuple[Decision, ...]"),
    ("Policy", "limits"): ("tuple", "tuple[Limit, ...]"),
    ("CallCoroutine", "__await__"): ("Any", "Generator[Any, Any, Any]"),
}
# The parameters for the options of a limiter, without and with a type for its policies.
OPTIONS = "**options: Unpack[LimiterOptions]"
TYPED_OPTIONS = "*, policies: Mapping[Name, Any] | None = None, **options: Unpack[LimiterSettings]"

GETITEM = "def __class_getitem__(cls, key: Any) -> GenericAlias: ..."


def with_names(text: str) -> str:
    """Gives both limiters the names of their policies as a type. `check` takes these names, and Policies."""
    for kind in ("Limiter", "AsyncLimiter"):
        begin = text.index(f"\nclass {kind}")
        end = text.find("\n@final\n", begin)
        parts = text[begin:end].split('"""')
        for index in range(0, len(parts), 2):
            part = re.sub(rf"^\nclass {kind}(\(.*?\))?:", f"\nclass {kind}(Generic[Name]):", parts[index])
            part = part.replace("policy: str | Policy", "policy: Name | Policy")
            # A limiter of a file has the names of the file, which no type knows.
            part = re.sub(r"(def from_file\(.*?-> )(\w+)", r"\1\2[str]", part, flags=re.DOTALL)
            # Introspection does not see this method.
            part = part.replace("    def __new__(", f"    {GETITEM}\n    def __new__(")
            part = re.sub(
                r"(def __new__\(.*?\))( ->|:)", lambda new: new[1].replace(OPTIONS, TYPED_OPTIONS) + new[2], part
            )
            part = re.sub(r"(-> (?:Coroutine\[Any, Any, )?(?:Async)?Limiter)(?![\[\w])", r"\1[Name]", part)
            parts[index] = part
        text = text[:begin] + '"""'.join(parts) + text[end:]
    return text


def refined(text: str) -> str:
    text = text[text.index("\n__all__") :]
    # These defaults are values of Rust, which have no literal.
    text = re.sub(r'(\btimeout: "?float \| timedelta \| None"?) = \.\.\.', r"\1 = 0.0", text)
    text = re.sub(r'(\bcost: "?int \| Mapping\[str, int\]"?) = \.\.\.', r"\1 = 1", text)
    # Annotations only: docstrings keep their quotes.
    parts = text.split('"""')
    parts[::2] = [re.sub(r'(: |-> )"([^"\n]+)"', r"\1\2", part) for part in parts[::2]]
    text = '"""'.join(parts)
    for (kind, member), (given, exact) in EXACT.items():
        before = re.search(rf"\nclass {kind}:.*?def {member}\([^)]*\) -> ", text, re.DOTALL)
        if before is None or not text.startswith(f"{given}:", before.end()):
            raise SystemExit(f"stubs: {kind}.{member} does not return {given} any more: change EXACT in {__file__}")
        text = text[: before.end()] + exact + text[before.end() + len(given) :]
    return HEAD + with_names(text)


def formatted(text: str) -> str:
    # The ruff of the environment that runs this.
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main(generated: str, *words: str) -> int:
    (source,) = Path(generated).rglob("*.pyi")
    text = formatted(refined(source.read_text()))
    if "--check" not in words:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() != text:
        print(f"{TARGET.name} differs from the compiled module: run `make stubs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
