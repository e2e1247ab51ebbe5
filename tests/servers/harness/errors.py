"""The one error of the harness: its text is what a failing test shows."""


class HarnessError(Exception):
    """The servers could not be started or controlled; the message says why."""
