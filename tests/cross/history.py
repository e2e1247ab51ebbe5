"""Plays a history that comes as JSON, line by line, and says every field of every Decision."""

import json
import sys

from tidegate import Limiter, ManualClock


def fields(decision):
    def ms(seconds):
        return None if seconds is None else round(seconds * 1_000_000)

    return {
        "allowed": decision.allowed,
        "policy": decision.policy,
        "key": decision.key,
        "cost": decision.cost,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after": ms(decision.retry_after),
        "reset_after": ms(decision.reset_after),
        "reset_at": int(decision.reset_at * 1000 + 0.0005),
        "delay": ms(decision.delay),
        "source": decision.source,
        "shadow": decision.shadow,
        "limits": [
            {
                "algorithm": limit.algorithm,
                "limit": limit.limit,
                "period": ms(limit.period),
                "remaining": limit.remaining,
                "retry_after": ms(limit.retry_after),
                "reset_after": ms(limit.reset_after),
                "exceeded": limit.exceeded,
            }
            for limit in decision.limits
        ],
        "decisions": [fields(part) for part in decision.decisions],
    }


store, policies, start = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
clock = ManualClock(now=start)
limiter = Limiter(store, policies=policies, prefix="python", clock=clock, timeout=20)
for line in sys.stdin:
    step = json.loads(line)
    clock.advance(step["advance"] / 1000)
    if step["do"] == "check_all":
        decision = limiter.check_all([tuple(entry) for entry in step["entries"]])
    else:
        call = getattr(limiter, step["do"])
        decision = call(step["policy"], step["key"], cost=step["cost"])
    print(json.dumps(fields(decision)), flush=True)
