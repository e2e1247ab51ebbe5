"""The application that the workers of test_celery.py run. Its tasks note their steps in lists of Redis."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import redis
from celery import Celery

from tidegate import Decision, Limiter
from tidegate.celery import limited

URL, PREFIX = os.environ["TIDEGATE_TEST_REDIS"], os.environ["TIDEGATE_TEST_PREFIX"]

app = Celery("jobs", broker=URL, backend=URL)
app.conf.task_default_queue = PREFIX
app.conf.result_backend_transport_options = {"global_keyprefix": PREFIX}
app.conf.broker_connection_retry_on_startup = False
app.conf.worker_prefetch_multiplier = 1

POLICIES: dict[str, Any] = {
    "window": "sliding-log 10/2s",
    "bucket": "gcra 20/s burst 1",
    "counted": "gcra 20/s burst 1",
    "single": "concurrency 1 ttl 20s",
    "fragile": "concurrency 1 ttl 2s",
    "rare": "10/hour",
}
limiter = Limiter(URL, prefix=PREFIX, policies=POLICIES, timeout=20.0, on_store_error="raise")
_redis = redis.Redis.from_url(URL)


def end_with_the_tests() -> None:
    # Reads without sys.stdin, because a forked process would find its lock taken.
    os.read(0, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if "TIDEGATE_TEST_WORKER" in os.environ:
    threading.Thread(target=end_with_the_tests, daemon=True).start()


def note(what: str, **more: Any) -> None:
    """Adds an event to one of the lists."""
    _redis.rpush(f"{PREFIX}:{what}", json.dumps({"at": time.time(), "pid": os.getpid(), **more}))


def waits(decision: Decision, seconds: float) -> None:
    note("waits", key=decision.key, seconds=seconds)


@app.task(max_retries=0)
@limited(limiter, "window", key=lambda user, *args: user, on_wait=waits)
def in_window(user: str, number: int) -> int:
    note("window", user=user, number=number)
    return number


@app.task(bind=True, max_retries=0, acks_late=True)
@limited(limiter, "bucket", key=lambda user, *, number: user, on_wait=waits)
def in_bucket(self: Any, user: str, *, number: int) -> int:
    note("bucket", number=number, retries=self.request.retries, mine=self.request.headers.get("mine"))
    return number


@app.task(bind=True, autoretry_for=(ZeroDivisionError,), max_retries=1, default_retry_delay=0.01)
@limited(limiter, "counted", key=lambda: "all", on_wait=waits)
def fails_once(self: Any) -> int:
    note("fails", id=self.request.id, retries=self.request.retries)
    return 1 // self.request.retries


@app.task
@limited(limiter, "counted", key=lambda *numbers: "sum", on_wait=waits)
def add(*numbers: int) -> int:
    return sum(numbers)


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
@limited(limiter, "single", on_wait=waits)
def alone(number: int) -> None:
    note("alone", number=number, begins=True)
    time.sleep(0.02)
    note("alone", number=number, begins=False)
    if number % 3 == 0:
        raise ValueError("this job fails")


@app.task
@limited(limiter, "fragile", key="all", on_wait=waits)
def hangs(is_long: bool) -> None:
    note("hangs", is_long=is_long)
    if is_long:
        time.sleep(600)


@app.task
@limited(limiter, lambda user: None if user == "free" else "rare", key=lambda user: user, max_wait=0.5, on_wait=waits)
def rarely(user: str) -> str:
    note("rarely", user=user)
    return user


@app.task
@limited(limiter, "rare", key="never", cost=lambda: 11)
def never() -> None:
    note("never")
