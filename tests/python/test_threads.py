"""Many threads on one limiter: every check counts once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tidegate import Limiter

THREADS = 16


def on_threads(work: Callable[[int], int]) -> int:
    """Runs the work on 16 threads at once. Returns the sum of the results."""
    done: list[int] = []
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait()
        done.append(work(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == THREADS
    return sum(done)


@pytest.mark.parametrize("policy", ["fixed-window 1000/hour", "gcra 1000/day burst 1000", "1000/hour; 5000/day"])
def test_sixteen_threads_get_exactly_the_limit(store: str, prefix: str, policy: str) -> None:
    limiter = Limiter(store, policies={"api": policy}, prefix=prefix, timeout=60.0)

    def work(number: int) -> int:
        return sum(bool(limiter.check("api", "one")) for _ in range(100))

    assert on_threads(work) == 1_000


def test_two_limiters_of_one_process_are_two_users_of_a_store(shared_store: str, prefix: str) -> None:
    made = [Limiter(shared_store, prefix=prefix, timeout=60.0) for _ in range(2)]
    other = Limiter(shared_store, prefix=f"{prefix}-other", timeout=60.0)

    def work(number: int) -> int:
        limiter = made[number % 2]
        return sum(bool(limiter.check("fixed-window 1000/hour", "one")) for _ in range(100))

    assert on_threads(work) == 1_000
    made[0].close()
    assert not made[1].check("fixed-window 1000/hour", "one")
    assert other.check("fixed-window 1000/hour", "one"), "another prefix is another application"


def test_sixteen_threads_never_hold_more_than_the_limit(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"exports": "concurrency 3"}, prefix=prefix, timeout=60.0)
    lock, running, most = threading.Lock(), 0, 0

    def work(number: int) -> int:
        nonlocal running, most
        for _ in range(5):
            if not limiter.acquire("1000/s", "any", timeout=60):
                continue
            try:
                hold = limiter.hold("exports", "one")
            except Exception:
                continue
            with hold:
                with lock:
                    running += 1
                    most = max(most, running)
                with lock:
                    running -= 1
        return 1

    on_threads(work)
    assert 1 <= most <= 3
    assert limiter.peek("exports", "one").remaining == 3


def test_threads_acquire_one_after_the_other(store: str, prefix: str) -> None:
    limiter = Limiter(store, policies={"api": "gcra 200/s burst 1"}, prefix=prefix, timeout=60.0)
    assert on_threads(lambda number: sum(bool(limiter.acquire("api", "one", timeout=60)) for _ in range(3))) == 48
