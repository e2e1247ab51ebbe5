"""Measures how long jobs run, because the wait of a refused job depends on it."""

from __future__ import annotations


class JobLength:
    """The typical run time of jobs in this process, in seconds. None before any has ended."""

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None

    def add(self, seconds: float) -> None:
        self.mean = seconds if self.mean is None else 0.8 * self.mean + 0.2 * seconds
