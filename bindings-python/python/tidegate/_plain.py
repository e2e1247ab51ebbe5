"""Turns Decisions, policies and limits into JSON values and back, because task queues send errors that way."""

from __future__ import annotations

import functools
from typing import Any

# The key of a dict that names its class.
CLASS = "tidegate"


def to_plain(given: Any) -> Any:
    """Turns a value into lists, dicts, texts and numbers."""
    from ._tidegate import Decision, Limit, Policy

    if isinstance(given, tuple):
        return [to_plain(one) for one in given]
    if not isinstance(given, (Decision, Limit, Policy)):
        return given
    # The same parts as for pickle.
    make, arguments = given.__reduce__()
    options = make.keywords if isinstance(make, functools.partial) else {}
    return {CLASS: type(given).__name__, "arguments": to_plain(arguments), "options": options}


def from_plain(given: Any) -> Any:
    """Makes the value again from its plain form."""
    from ._tidegate import Limit, Policy, restore_decision

    if isinstance(given, list):
        return tuple(from_plain(one) for one in given)
    if not isinstance(given, dict):
        return given
    make: Any = {"Decision": restore_decision, "Limit": Limit, "Policy": Policy}[given[CLASS]]
    return make(*from_plain(given["arguments"]), **given["options"])
