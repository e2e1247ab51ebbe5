"""The error of the harness; a failing test shows its text."""


class HarnessError(Exception):
    """The servers could not be started or controlled; the message says why."""
