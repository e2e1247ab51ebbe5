"""An extension of Griffe, which reads the package of Python for its reference."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ReferenceOfPython(griffe.Extension):
    """Shows the package as its callers see it."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Shows the arguments of `__new__` as those of `__init__`, because compiled classes have only `__new__`."""
        made = cls.members.get("__new__")
        if isinstance(made, griffe.Function) and "__init__" not in cls.members:
            of_caller = [parameter for parameter in made.parameters if parameter.name != "cls"]
            shown = griffe.Function("__init__", parameters=griffe.Parameters(*of_caller), lineno=made.lineno)
            cls.set_member("__init__", shown)

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Drops the docstring of a module, because the sections of the page explain its purpose."""
        mod.docstring = None

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replaces the two colons before a block of code, which belong to another markup."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"::$", ":", obj.docstring.value, flags=re.MULTILINE)
