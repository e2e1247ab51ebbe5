"""`tidegate.celery`: a real worker of two processes on a real Redis."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord

from paths import ROOT
from tidegate import AsyncLimiter, ConfigError, Limiter, ManualClock, Policy, PolicyError, RateLimited
from tidegate.celery import limited

# The number of workers to kill in the midst of a job. A long run uses 50.
KILLS = int(os.environ.get("TIDEGATE_KILLS", "2"))


class Worker:
    """The application, and the notes of its tasks."""

    def __init__(self, app: Any, url: str, prefix: str) -> None:
        self.app, self._redis, self._prefix = app, redis.Redis.from_url(url), prefix

    def noted(self, what: str) -> list[dict[str, Any]]:
        lines: list[bytes] = self._redis.lrange(f"{self._prefix}:{what}", 0, -1)  # type: ignore[assignment]
        return [json.loads(line) for line in lines]

    def waits(self, key: str) -> list[float]:
        """Returns the waits that the key's jobs were given, in seconds."""
        return [one["seconds"] for one in self.noted("waits") if one["key"] == f"job:{key}"]

    def unacknowledged(self) -> int:
        return int(self._redis.hlen("unacked"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worker(redis_url: str) -> Iterator[Worker]:
    prefix = f"celery{os.getpid()}"
    environment = {"TIDEGATE_TEST_REDIS": redis_url, "TIDEGATE_TEST_PREFIX": prefix}
    folder = ROOT / "tests" / "python"
    options = ["--concurrency", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
    program = [sys.executable, "-m", "celery", "--app", "celery_app", "worker", "--pool", "prefork", *options]
    process = subprocess.Popen(
        program,
        cwd=folder,
        env={**os.environ, **environment, "TIDEGATE_TEST_WORKER": "1"},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        module = importlib.import_module("celery_app")
    try:
        yield Worker(module, redis_url, prefix)
    finally:
        module.limiter.close()
        module.app.close()
        process.communicate()


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_no_window_has_more_jobs_than_the_limit(worker: Worker) -> None:
    began = time.time()
    sent = [worker.app.in_window.delay(user, number) for number in range(20) for user in ("alice", "bob")]
    assert [one.get(timeout=60) for one in sent] == [number for number in range(20) for _ in range(2)]
    ran = worker.noted("window")
    assert set(Counter((one["user"], one["number"]) for one in ran).values()) == {1}
    for user in ("alice", "bob"):
        times = sorted(one["at"] - began for one in ran if one["user"] == user)
        # Ten jobs in two seconds: `began` is earlier than any admission, and each note is later than its admission.
        assert len(times) == 20
        assert [place for place, at in enumerate(times) if at < place // 10 * 2] == []
        assert len(worker.waits(user)) >= 10


def test_jobs_that_wait_do_not_thunder_and_use_no_attempt(worker: Worker) -> None:
    began = time.time()
    sent = [
        worker.app.in_bucket.apply_async(args=("carol",), kwargs={"number": number}, headers={"mine": "kept"})
        for number in range(60)
    ]
    assert [one.get(timeout=60) for one in sent] == list(range(60))
    ran = worker.noted("bucket")
    assert sorted(one["number"] for one in ran) == list(range(60))
    assert {(one["retries"], one["mine"]) for one in ran} == {(0, "kept")}
    times = sorted(one["at"] - began for one in ran)
    assert [place for place, at in enumerate(times) if at < place * 0.05 - 0.001] == []
    # If all jobs waited for the same moment, one would go and the others be refused each time: 60 * 59 / 2 times.
    assert 50 <= len(worker.waits("carol")) <= 600
    until(lambda: worker.unacknowledged() == 0)


def test_retries_are_counted_as_without_a_limit(worker: Worker) -> None:
    sent = [worker.app.fails_once.delay() for _ in range(8)]
    assert [one.get(timeout=60) for one in sent] == [1] * 8
    ran = Counter((one["id"], one["retries"]) for one in worker.noted("fails"))
    assert ran == {(one.id, retries): 1 for one in sent for retries in (0, 1)}
    assert worker.waits("all")


def test_groups_chords_and_chains(worker: Worker) -> None:
    add, total = worker.app.add, worker.app.total
    assert chord([add.s(number) for number in range(6)], total.s()).apply_async().get(timeout=60) == 15
    chains = [chain(add.s(number), add.s(20), add.s(300)).apply_async() for number in range(3)]
    assert [one.get(timeout=60) for one in chains] == [320, 321, 322]
    assert worker.waits("sum")


def test_a_limit_of_jobs_at_the_same_time(worker: Worker) -> None:
    sent = [worker.app.alone.delay(number) for number in range(12)]
    failed = [number for number, one in enumerate(sent) if isinstance(one.get(timeout=60, propagate=False), ValueError)]
    assert failed == [0, 3, 6, 9]
    noted = worker.noted("alone")
    # Each job ends before the next one begins.
    assert [one["begins"] for one in noted] == [True, False] * 12
    assert [one["number"] for one in noted[::2]] == [one["number"] for one in noted[1::2]]
    assert len({one["number"] for one in noted}) == 12
    assert worker.waits("celery_app.alone")
    until(lambda: worker.app.limiter.peek("single", "job:celery_app.alone").remaining == 1)


def test_a_worker_that_is_killed_gives_its_units_back(worker: Worker) -> None:
    for kill in range(KILLS):
        worker.app.hangs.delay(True)
        long = until(lambda n=kill: [one for one in worker.noted("hangs") if one["is_long"]][n:])[0]
        before = len(worker.waits("all"))
        worker.app.hangs.delay(False)
        # A machine that stalls for longer than the ttl ends the hold. The short job then runs at once.
        until(lambda n=before, k=kill: len(worker.waits("all")) > n or len(worker.noted("hangs")) == 2 * k + 2)
        os.kill(long["pid"], signal.SIGKILL)
        until(lambda n=kill: [one for one in worker.noted("hangs") if not one["is_long"]][n:])
    until(lambda: worker.app.limiter.peek("fragile", "job:all").remaining == 1)
    assert len(worker.noted("hangs")) == 2 * KILLS


def test_a_job_waits_longer_than_its_longest_countdown_or_is_revoked(worker: Worker) -> None:
    rarely, limiter = worker.app.rarely, worker.app.limiter
    for user in ("dan", "eve"):
        limiter.block("rare", f"job:{user}", 600)
    waiting, revoked = rarely.delay("dan"), rarely.delay("eve")
    until(lambda: worker.waits("eve"))
    revoked.revoke()
    assert rarely.delay("free").get(timeout=60) == "free"
    # The job asks again after half a second, although its wait is ten minutes.
    until(lambda: len(worker.waits("dan")) >= 2)
    assert worker.waits("dan")[0] > 500
    limiter.unblock("rare", "job:dan")
    assert waiting.get(timeout=60) == "dan"
    until(lambda: revoked.state == "REVOKED")
    assert [one["user"] for one in worker.noted("rarely")] == ["free", "dan"]
    # The revoked job took no units.
    limiter.unblock("rare", "job:eve")
    assert limiter.peek("rare", "job:eve").remaining == 10


def test_a_job_that_can_never_run_fails(worker: Worker) -> None:
    with pytest.raises(RateLimited):
        worker.app.never.delay().get(timeout=60)
    assert worker.noted("never") == []


def test_without_a_worker_a_refusal_is_an_error() -> None:
    app = Celery("here")
    limiter = Limiter(policies={"one": "fixed-window 1/minute"}, clock=ManualClock(1_700_000_000.0))

    @app.task(bind=True)
    @limited(limiter, "one", key=lambda user: user)
    def send(self: Any, user: str) -> str:
        return user

    with pytest.raises(TypeError, match="positional argument"):
        send.apply_async()
    assert send("alice") == "alice"
    with pytest.raises(RateLimited):
        send("alice")
    assert send.apply(args=("bob",)).get() == "bob"
    with pytest.raises(RateLimited):
        send.apply(args=("bob",)).get()
    assert limiter.peek("one", "job:alice").remaining == 0

    batch = Policy("100 tokens/minute", priorities={"batch": "50%"})

    @limited(limiter, batch, key="all", cost=lambda: {"tokens": 30}, priority=lambda: "batch", prefix="")
    def embed() -> None: ...

    embed()
    with pytest.raises(RateLimited):
        embed()
    assert limiter.peek(batch, "all", {"tokens": 1}).limits[0].remaining == 70


def test_what_is_wrong_is_said_where_it_is_written() -> None:
    app = Celery("here")
    limiter = AsyncLimiter(policies={"one": "1/minute"})
    with pytest.raises(ConfigError, match='write gcra with a burst of 1, as in "gcra 10/s burst 1"'):
        limited(limiter, "leaky-bucket 10/s burst 5")
    with pytest.raises(PolicyError, match="neither a policy"):
        limited(limiter, "two")
    with pytest.raises(TypeError, match="key must be a function of the arguments or a text, not 5"):
        limited(limiter, "one", key=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_wait is 0"):
        limited(limiter, "one", max_wait=0)

    @app.task
    def send() -> None: ...

    with pytest.raises(TypeError, match=r"put @limited below @app\.task"):
        limited(limiter, "one")(send)
