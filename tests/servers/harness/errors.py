"""The error of the harness. A failing test shows its text."""


class HarnessError(Exception):
    """The servers could not be started or controlled. The message gives the reason."""
