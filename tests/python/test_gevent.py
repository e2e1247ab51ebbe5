"""A greenlet of gevent waits. The hub runs others meanwhile, and these may give back the units that it waits for."""

from __future__ import annotations

import subprocess
import sys

WAITING = """
import sys
from gevent import monkey; monkey.patch_all()
import gevent
from tidegate import Limiter, RateLimited

with Limiter(sys.argv[1], prefix=sys.argv[2], timeout=5.0) as limiter:
    held, may_release = gevent.event.Event(), gevent.event.Event()

    def hold():
        with limiter.hold("concurrency 1", "a") as hold:
            held.set()
            may_release.wait()
            hold.release()

    holder = gevent.spawn(hold)
    held.wait()
    try:
        limiter.hold("concurrency 1", "a")
    except RateLimited:
        print("full")
    # As many as wait at once in one worker, and one that is ended while it waits.
    limiter.check("gcra 20/s burst 1", "b")
    waiting = [gevent.spawn(limiter.acquire, "gcra 20/s burst 1", "b", 1, 30.0) for _ in range(8)]
    killed = gevent.spawn(limiter.acquire, "1/hour", "c") if limiter.check("1/hour", "c") else None
    may_release.set()
    holder.join()
    gevent.joinall(waiting)
    print(all(one.value for one in waiting))
    killed.kill()
    while limiter.waiting("1/hour", "c"):
        gevent.sleep(0.01)
    print(type(killed.value).__name__)
    limiter.hold("concurrency 1", "a").release()
"""


def test_greenlets_wait_beside_each_other(store: str, prefix: str) -> None:
    command = [sys.executable, "-c", WAITING, store, prefix]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "full\nTrue\nGreenletExit\n"), ended.stderr
