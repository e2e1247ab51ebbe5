"""Behind a proxy that repeats, drops, swaps and cuts replies no call gets another call's Decision.

`TIDEGATE_OUT_OF_STEP` sets the number of Decisions that each way of calling has to get.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client import Servers
from tidegate import AsyncLimiter, Decision, Limiter, StoreError

PROXY = Path(__file__).resolve().parents[1] / "servers" / "faulty_proxy.py"
DECISIONS = int(os.environ.get("TIDEGATE_OUT_OF_STEP", "5000"))
COUNT = 1_000_000
POLICIES = ["fixed-window 1000000/hour", "gcra 1000000/hour", "sliding-log 1000000/hour"]
# Calls fail at once while the breaker is open, so a pause keeps them from spinning.
AFTER_FAILURE = 0.001


@contextmanager
def faulty_proxy(port: int, seed: int) -> Iterator[str]:
    command = [sys.executable, str(PROXY), str(port), str(seed)]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert proxy.stdin is not None and proxy.stdout is not None
    with proxy:
        yield f"redis://127.0.0.1:{proxy.stdout.readline().strip()}/0"
        proxy.stdin.close()
        faults = int(proxy.stdout.readline())
    assert faults > DECISIONS / 1_000, f"{faults} replies were corrupted"


class Question:
    """A call unlike any other, so that its Decision is known."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.policy = chance.choice(POLICIES)
        self.key = f"key {number}"
        self.cost = chance.randint(1, 2 * COUNT)

    def is_answered_by(self, decision: Decision) -> bool:
        allowed = self.cost <= COUNT
        expected = (allowed, COUNT - (self.cost if allowed else 0), self.key, self.cost)
        assert (decision.allowed, decision.limits[0].remaining, decision.key, decision.cost) == expected, decision
        return True


def test_blocking_calls_get_their_own_decision_or_an_error(server: Servers, prefix: str) -> None:
    answered, numbers, failures = itertools.count(), itertools.count(), []
    enough = threading.Event()

    def ask(limiter: Limiter, seed: int) -> None:
        chance = random.Random(seed)
        while not enough.is_set():
            question = Question(next(numbers), chance)
            try:
                question.is_answered_by(limiter.check(question.policy, question.key, cost=question.cost))
            except StoreError:
                time.sleep(AFTER_FAILURE)
                continue
            except AssertionError as wrong:
                failures.append(wrong)
                enough.set()
            if next(answered) >= DECISIONS:
                enough.set()

    with faulty_proxy(server.json["servers"][0]["port"], 1) as url:
        options = {"prefix": prefix, "timeout": 0.06, "deny_cache": 0, "on_store_error": "raise"}
        with Limiter(url, **options) as limiter:  # type: ignore[arg-type]
            threads = [threading.Thread(target=ask, args=(limiter, seed)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not failures, failures[0]


def test_awaited_calls_get_their_own_decision_or_an_error(server: Servers, prefix: str) -> None:
    async def main(url: str) -> None:
        answered, numbers = itertools.count(), itertools.count()
        enough = False
        limiter = AsyncLimiter(url, prefix=prefix, timeout=0.06, deny_cache=0, on_store_error="raise")

        async def ask(seed: int) -> None:
            nonlocal enough
            chance = random.Random(seed)
            while not enough:
                question = Question(next(numbers), chance)
                try:
                    question.is_answered_by(await limiter.check(question.policy, question.key, cost=question.cost))
                except StoreError:
                    await asyncio.sleep(AFTER_FAILURE)
                    continue
                enough = next(answered) >= DECISIONS

        await asyncio.gather(*(ask(seed) for seed in range(16)))
        await limiter.close()

    with faulty_proxy(server.json["servers"][0]["port"], 2) as url:
        asyncio.run(main(url))
