"""Runs a history, which it reads as lines of JSON, and prints every field of every Decision."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from decision_fields import fields_of
from tidegate import Limiter, ManualClock

store, policies, start = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
clock = ManualClock(now=start)
limiter = Limiter(store, policies=policies, prefix="python", clock=clock, deny_cache=0, timeout=20)
for line in sys.stdin:
    step = json.loads(line)
    clock.advance(step["advance"] / 1000)
    if step["do"] == "check_all":
        decision = limiter.check_all([tuple(entry) for entry in step["entries"]])
    else:
        call = getattr(limiter, step["do"])
        partial = {"partial": True} if "partial" in step else {}
        decision = call(step["policy"], step["key"], cost=step["cost"], **partial)
    print(json.dumps(fields_of(decision)), flush=True)
