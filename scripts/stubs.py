#!/usr/bin/env python3
"""Makes `_tidegate.pyi` of what maturin reads from the compiled module.

    python scripts/stubs.py GENERATED         writes it
    python scripts/stubs.py GENERATED --check fails when the committed one says something else

Docstrings and most types come from Rust. What pyo3 cannot say yet is said here: annotations as text lose their quotes,
names get their imports, and a tuple learns what is in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "bindings-python" / "python" / "tidegate" / "_tidegate.pyi"
HEAD = '''# Made by scripts/stubs.py from the compiled module: `make stubs` writes it anew.

"""The compiled part of the package `tidegate`; import its names from there."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from os import PathLike
from typing import Any, Final, NoReturn, final

from ._decorator import Decorator
from ._hold import Holding
'''
# By class and member: what pyo3 says, and what is so.
KNOWN = {
    ("Decision", "limits"): ("tuple", "tuple[LimitState, ...]"),
    ("Decision", "decisions"): ("tuple", "tuple[Decision, ...]"),
    ("Policy", "limits"): ("tuple", "tuple[Limit, ...]"),
    ("Pending", "__await__"): ("Any", "Generator[Any, Any, Any]"),
}


def refined(text: str) -> str:
    text = text[text.index("\n__all__") :]
    text = re.sub(r'(: |-> )"([^"\n]+)"', r"\1\2", text)
    for (kind, member), (said, is_so) in KNOWN.items():
        before = re.search(rf"\nclass {kind}:.*?def {member}\([^)]*\) -> ", text, re.DOTALL)
        if before is None or not text.startswith(f"{said}:", before.end()):
            raise SystemExit(f"stubs: {kind}.{member} does not return {said} any more: mend KNOWN in {__file__}")
        text = text[: before.end()] + is_so + text[before.end() + len(said) :]
    return HEAD + text


def formatted(text: str) -> str:
    # Of the environment that runs this, wherever that is.
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main(generated: str, *words: str) -> int:
    (source,) = Path(generated).rglob("_tidegate.pyi")
    text = formatted(refined(source.read_text()))
    if "--check" not in words:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() != text:
        print(f"{TARGET.name} is not what the compiled module says: run `make stubs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
