"""Whether a layer limits at all: the option `enabled`, and what configures it from outside."""

from __future__ import annotations

import os

from .._shown import shown
from ..errors import ConfigError

VARIABLE = "TIDEGATE_ENABLED"

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def enabled_option(given: object) -> bool | None:
    """The option of a layer or of a limit. None: it was not given."""
    if given is None or isinstance(given, bool):
        return given
    raise ConfigError(f"enabled is True or False, not {shown(given)}")


def enabled_setting(given: object, name: str) -> bool:
    """What a configuration says, which may be a text."""
    if isinstance(given, (bool, int)) and given in (0, 1):
        return bool(given)
    word = _WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    if word is None:
        raise ConfigError(f"{name} is true or false (or 1, 0, yes, no, on, off), not {shown(given)}")
    return word


def enabled_layer(option: bool | None) -> bool:
    """Whether a layer is enabled: what its option says, else the environment, else yes."""
    if option is not None:
        return option
    variable = os.environ.get(VARIABLE, "")
    return enabled_setting(variable, f"the environment variable {VARIABLE}") if variable else True
