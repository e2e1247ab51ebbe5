"""Compares the notation with `limits.parse_many`: a text that this package reads means the same here.

There are three deliberate differences, and each is an error with its reason: a count above 10^12, a period above ten
years, and more than 15 limits. `limits` refuses extensions of Tidegate such as algorithms, `week` or `burst`.
"""

from __future__ import annotations

import random

import limits
import pytest

from tidegate import Policy, PolicyError

# The examples of the package's documentation: quickstart, "Rate limit string notation", strategies and the API page.
DOCUMENTED = [
    "1/minute",
    "1/second",
    "1 per second",
    "1 per minute",
    "1/second; 5/minute",
    "10/hour",
    "10 per hour",
    "10 per 2 hours",
    "10/hour;100/day;2000 per year",
    "10/2hours",
    "100/day, 500/7days",
    "100/10 seconds",
    "2/second|100/minute",
    "5 per minute",
    "10 per 5 minute",
    "10 per minute",
    "10/minute",
    "200 per day",
    "50 per hour",
    "2000 per year",
    "500/7days",
    "1 per day",
    "1/month",
    "12 per month",
]
MOST, TEN_YEARS = 10**12, 315_576_000


def theirs(text: str) -> list[tuple[int, int]] | None:
    try:
        return [(item.amount, item.get_expiry()) for item in limits.parse_many(text)]
    except ValueError:
        return None


def ours(text: str) -> list[tuple[int, float]] | None:
    try:
        return [(limit.count, limit.period) for limit in Policy(text).limits]
    except PolicyError:
        return None


def is_deliberate(read: list[tuple[int, int]]) -> bool:
    return len(read) > 15 or any(count > MOST or period > TEN_YEARS for count, period in read)


def compared(text: str) -> bool:
    """Compares both readings of a text. False if `limits` cannot read it, or if a deliberate difference applies."""
    read = theirs(text)
    if read is None:
        return False
    if is_deliberate(read):
        with pytest.raises(PolicyError):
            Policy(text)
        return False
    assert ours(text) == read, text
    return True


def test_what_its_documentation_shows_means_the_same() -> None:
    for text in DOCUMENTED:
        assert compared(text), text


def test_texts_that_its_pattern_lets_through_mean_the_same() -> None:
    for text in (
        *["1persecond", "1 PER Second", " 1 / 1 minute ", "1/\tminute\n", "1\u00a0per\u2003minute", "1/minute\n"],
        *[
            "5/0 minute",
            "5/00minutes",
            "007/minute",
            "1/01minute",
            "0/minute",
            "10per2hours;5/day",
            "1 /minute|1 /hour",
        ],
        *["1/minute:;2/hour", "1/minute:,2/hour :| 3/day", "1/minute:;2/hour:;3/day"],
    ):
        assert compared(text), text


def test_the_deliberate_differences_are_errors_that_say_so() -> None:
    for text, words in (
        ("1000000000001/minute", "1000000000000"),
        ("1/11 years", "10 years"),
        ("; ".join(["1/minute"] * 16), "15"),
    ):
        assert theirs(text) is not None
        with pytest.raises(PolicyError, match=words):
            Policy(text)


def generated(chance: random.Random) -> str:
    """Returns a text near the pattern of the package: mostly valid, and often with one character changed."""
    blank = lambda: chance.choice(["", "", " ", " ", "  ", "\t", "\u00a0", "\n"])  # noqa: E731
    unit = ["second", "minute", "hour", "day", "month", "year"]
    parts = []
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3, 5])):
        count = chance.choice([0, 1, 7, 20, 1000, 10**12, 10**12 + 1, chance.randrange(10**6)])
        multiple = chance.choice(["", "", "", "0", "1", "2", "07", "15", "120", "5000", str(chance.randrange(10**8))])
        name = chance.choice(unit) + chance.choice(["", "s"])
        name = chance.choice([name, name, name.upper(), name.title(), name[:-1], name + "s"])
        per = chance.choice(["/", "/", "per", " per ", "PER", "Per "])
        parts.append(f"{blank()}{count}{blank()}{per}{blank()}{multiple}{blank()}{name}{blank()}")
    text = parts[0]
    for part in parts[1:]:
        text += chance.choice([";", ";", ",", "|", ":;", ";;", " "]) + part
    if chance.random() < 0.25:
        at = chance.randrange(len(text) + 1)
        change = chance.choice(["", "x", "/", ";", ":", ".", "-", "_", "1", " ", "é", "\u0661", "\u017f", "\u212a"])
        text = text[:at] + change + text[at + chance.randrange(2) :]
    return text


def test_generated_texts_mean_the_same() -> None:
    chance = random.Random(20_260_730)
    read = sum(compared(generated(chance)) for _ in range(10_000))
    # With fewer texts too little would be compared.
    assert read > 2_500
