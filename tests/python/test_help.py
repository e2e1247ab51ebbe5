"""Every public name has a docstring, and `help()` shows it."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import pydoc
import types
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate
from web_django import django_settings

# The modules for frameworks share it. Applications do not import it.
INTERNAL = {"web"}
# These need Python 3.11.
NEED_3_11 = {"httpx2": "httpx2", "langchain": "langchain_core", "mcp": "mcp", "quart": "quart"}
NEWER = {name for name, package in NEED_3_11.items() if importlib.util.find_spec(package)}
MODULES = ["tidegate"] + [
    f"tidegate.{one.name}"
    for one in pkgutil.iter_modules(tidegate.__path__)
    if one.name[0] != "_" and one.name not in INTERNAL and (one.name in NEWER or one.name not in NEED_3_11)
]
MODULES.append("tidegate.django.rest_framework")


def public(name: str) -> Iterator[tuple[str, Any]]:
    """Yields everything with a public name in a module: itself, its functions and classes, and their members."""
    if name.startswith("tidegate.django"):
        django_settings()
    module = importlib.import_module(name)
    yield name, module
    for known in module.__all__:
        noun = getattr(module, known)
        # Python 3.10 treats an alias of a class as a class.
        is_class = inspect.isclass(noun) and not isinstance(noun, types.GenericAlias)
        if not (is_class or inspect.isroutine(noun)):
            continue
        yield f"{name}.{known}", noun
        if not is_class:
            continue
        # Python documents the members that every exception has.
        inherited = set(dir(BaseException)) if issubclass(noun, BaseException) else set()
        for member in (one for one in dir(noun) if one[0] != "_" and one not in inherited):
            found = inspect.getattr_static(noun, member)
            # The docstring of a class describes its plain attributes.
            if callable(getattr(noun, member)) or isinstance(found, property) or inspect.isgetsetdescriptor(found):
                yield f"{name}.{known}.{member}", found if inspect.isgetsetdescriptor(found) else getattr(noun, member)


def test_there_are_modules_for_every_framework() -> None:
    frameworks = {
        "flask",
        "fastapi",
        "asgi",
        "wsgi",
        "django",
        "django.rest_framework",
        "limits",
        "aiohttp_web",
        "sanic",
    }
    clients = {"httpx", "requests", "aiohttp", *NEWER}
    others = {"prometheus", "opentelemetry", "http", "errors", "outgoing", "llm", "celery", "pytest_plugin", "stores"}
    assert {*frameworks, *clients, *others} == {name.removeprefix("tidegate.") for name in MODULES[1:]}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    nouns = dict(public(module))
    assert len(nouns) > 1
    silent = [name for name, noun in nouns.items() if not (inspect.getdoc(noun) or "").strip()]
    assert not silent


@pytest.mark.parametrize(
    "name", ["Limiter.check", "AsyncLimiter.hold", "Decision.retry_after", "Policy", "RateLimited"]
)
def test_help_shows_it(name: str) -> None:
    noun: Any = tidegate
    for part in name.split("."):
        noun = getattr(noun, part)
    shown = pydoc.plain(pydoc.render_doc(noun))
    doc = inspect.getdoc(noun)
    assert doc and doc.splitlines()[0] in shown
