"""`import tidegate` in a fresh process loads no module that only some of its calls need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tidegate

# These modules take most of the time of an import: the first four 40 ms and more.
SLOW = {"asyncio", "ssl", "logging", "inspect", "dataclasses", "typing", "json", "re", "enum", "datetime", "threading"}
OWN = {"tidegate", "tidegate._tidegate", "tidegate.errors", "tidegate._shown"}
# Without `site`, because its files may load anything.
FRESH = [sys.executable, "-S", "-c"]

CHECK = """
limiter = tidegate.Limiter(policies={"login": "20/minute; 5/3s"})
assert all(limiter.check("login", "alice") for _ in range(5))
decision = limiter.check("login", "alice")
assert not decision and decision.retry_after and len(decision.limits) == 2
assert limiter.peek("5/minute", "bob", cost=2) and limiter.acquire("5/minute", "bob")
limiter.close()
"""


def loaded(program: str) -> set[str]:
    """Returns the modules that a fresh process has loaded after a program."""
    path = [folder for folder in sys.path if folder]
    text = f"import sys\nsys.path = {path!r}\nimport tidegate\n{program}\nprint(*sys.modules)"
    return set(subprocess.run([*FRESH, text], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("program", ["", CHECK], ids=["import", "checks in memory"])
def test_a_fresh_process_loads_no_module_that_it_does_not_need(program: str) -> None:
    modules = loaded(program)
    assert modules & SLOW == set()
    assert {name for name in modules if name.startswith("tidegate")} == OWN


def test_a_decorated_function_needs_asyncio_only_where_it_is_async() -> None:
    decorated = '@tidegate.Limiter().limit("5/s", key="k")\n{} send(): pass'
    assert "asyncio" not in loaded(decorated.format("def"))
    assert "asyncio" in loaded(decorated.format("async def"))


def test_names_that_are_loaded_later_are_those_of_the_package() -> None:
    assert set(tidegate.__all__) <= set(dir(tidegate))
    for name in tidegate.__all__:
        named = f"from tidegate import {name}\nassert {name} is tidegate.{name} is getattr(tidegate, {name!r})"
        assert "tidegate" in loaded(named)
    every = json.dumps(sorted(tidegate.__all__))
    loaded(f"from tidegate import *\nassert not [name for name in {every} if name not in globals()]")


def test_a_name_that_is_none_of_the_package_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'tidegate' has no attribute 'Limitter'"):
        tidegate.Limitter  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Limitter' from 'tidegate'"):
        from tidegate import Limitter  # type: ignore[attr-defined]  # noqa: F401
