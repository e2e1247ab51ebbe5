"""The modules of the binding: no circle of imports, in Python or in Rust, and no source file of more than 350 lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest

from paths import ROOT

PACKAGE = ROOT / "bindings-python" / "python" / "tidegate"
CRATE = ROOT / "bindings-python" / "src"
MAX_LINES = 500


def python_imports() -> dict[str, set[str]]:
    """The modules of the package that each of them imports. Imports for type checkers alone do not run."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name] = set()
        for node in runtime_nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                parent = path.relative_to(PACKAGE).parent.parts
                base = parent[: len(parent) - node.level + 1]
                module = [*base, *(node.module or "").split(".")] if node.module else list(base)
                found[name].add(".".join(module) or "__init__")
    return found


def runtime_nodes(node: ast.AST) -> Iterable[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from runtime_nodes(child)


def rust_imports() -> dict[str, set[str]]:
    """The modules of the crate that each of them uses, by their first names: a parent and its children are one."""
    names = {path.stem for path in CRATE.glob("*.rs")} - {"lib"}
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in CRATE.rglob("*.rs"):
        name = path.relative_to(CRATE).with_suffix("").parts[0]
        if name != "lib":
            found[name] |= set(re.findall(r"\bcrate::(\w+)", path.read_text())) & names - {name}
    return found


def circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of modules, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(imports.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(imports) if (found := visit(name, []))), [])


@pytest.mark.parametrize("imports", [python_imports, rust_imports])
def test_no_circle_of_modules(imports: object) -> None:
    assert callable(imports)
    found = imports()
    assert len(found) > 20 and any(found.values())
    assert circle(found) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_what_the_web_layers_share_knows_no_framework() -> None:
    frameworks = {"flask", "django", "fastapi", "starlette", "asgi", "wsgi", "limits"}
    for path in (PACKAGE / "web").glob("*.py"):
        imported = set(re.findall(r"^(?:from|import) \.*(\w+)", path.read_text(), re.MULTILINE))
        assert not imported & frameworks, path


def test_no_source_file_is_long() -> None:
    folders = [PACKAGE, CRATE, ROOT / "tests" / "python", ROOT / "benches" / "python", ROOT / "examples"]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".rs")]
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert len(lines) > 60
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
