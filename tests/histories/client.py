"""A client that records its calls: threads with a Limiter and tasks with an AsyncLimiter, until stdin closes.

Its argument is one JSON object, described in `tests/rust/src/call_records/programs.rs`. Each line of its output is a
call, in the form of `tests/rust/src/call_records/record.rs`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from decision_fields import fields_of
from tidegate import AsyncLimiter, Decision, Limiter, TidegateError

LONGEST_WAIT = 0.4

Call = dict[str, Any]


def draw_call(plan: dict[str, Any], draw: random.Random) -> Call:
    """Draws a random call on one of the keys of this moment."""
    policies = plan["policies"]
    now = time.monotonic_ns() // plan["slice"]
    number = draw.randrange(plan["groups"])
    at = now * plan["groups"] + number
    name = f"{plan['run']}-{now}-{number}"
    policy, other = policies[at % len(policies)], policies[(at + 5) % len(policies)]
    kind, cost, length = draw.randrange(100), 1, 0
    entries = [[policy, name, 1]]
    if kind < 72:
        operation, cost = "check", draw.choice([1, 1, 1, 1, 2, 3])
    elif kind < 80:
        operation = "peek"
    elif kind < 83:
        operation = "charge"
    elif kind < 88:
        operation = "refund"
    elif kind < 90:
        operation = "clear"
    elif kind < 93:
        operation, length = "block", draw.choice([0, 60_000, 120_000])
    elif kind == 93 and policy in plan["own"]:
        operation, length = "override", draw.randrange(2)
    else:
        operation = "check_all"
        entries.append([other if plan["across_policies"] else policy, name, 1])
    entries[0][2] = cost
    return {"group": name, "operation": operation, "entries": entries, "length": length}


def start(limiter: Any, call: Call, own: dict[str, str]) -> Any:
    """Makes the call. With an AsyncLimiter the result is awaitable."""
    policy, key, cost = call["entries"][0]
    match call["operation"]:
        case "check":
            return limiter.check(policy, key, cost=cost)
        case "peek":
            return limiter.peek(policy, key, cost=cost)
        case "charge":
            return limiter.charge(policy, key, cost)
        case "refund":
            return limiter.refund(policy, key, cost=cost)
        case "clear":
            return limiter.clear(policy, key)
        case "override":
            return limiter.override(policy, key, own[policy] if call["length"] else None)
        case "check_all":
            return limiter.check_all([tuple(entry) for entry in call["entries"]])
    if call["length"] == 0:
        return limiter.unblock(policy, key)
    return limiter.block(policy, key, call["length"] / 1_000_000)


def outcome_of(answer: object) -> object:
    """Returns the outcome of a call that did not fail."""
    if not isinstance(answer, Decision):
        return "done"
    if answer.source != "store":
        return "local"
    # Only the pickled form of a Decision has the time of the store. `reset_at` would not do: an unused limit has none.
    _, arguments = cast(Any, answer.__reduce__())
    return {"at": arguments[4][2], "decision": fields_of(answer)}


class Recorder:
    """The calls of one thread or task."""

    def __init__(self, plan: dict[str, Any], name: str) -> None:
        self.plan, self.name, self.lines = plan, f"{plan['name']}-{name}", list[str]()
        self.draw = random.Random(f"{plan['seed']} {self.name}")

    def record(self, call: Call, begin: int, answer: object) -> tuple[float, bool]:
        """Writes a call down. Returns the pause before the next call, and True if that repeats this one."""
        end = time.monotonic_ns()
        outcome = {"error": answer.code} if isinstance(answer, TidegateError) else outcome_of(answer)
        line = {**call, "client": self.name, "number": len(self.lines), "begin": begin, "end": end, "outcome": outcome}
        self.lines.append(json.dumps(line))
        if isinstance(answer, TidegateError):
            return float(self.plan["after_error"]), False
        wait = answer.retry_after if isinstance(answer, Decision) and not answer.allowed else None
        if wait and wait <= LONGEST_WAIT and self.draw.randrange(4) == 0:
            return wait, True
        return self.draw.random() * float(self.plan["pause"]), False


def run_thread(limiter: Limiter, recorder: Recorder, over: threading.Event) -> None:
    while not over.is_set():
        call = draw_call(recorder.plan, recorder.draw)
        for _ in range(2):
            begin, answer = time.monotonic_ns(), None
            try:
                answer = start(limiter, call, recorder.plan["own"])
            except TidegateError as error:
                answer = error
            wait, again = recorder.record(call, begin, answer)
            time.sleep(wait)
            if not again:
                break


async def run_task(limiter: AsyncLimiter, recorder: Recorder, over: threading.Event) -> None:
    while not over.is_set():
        call = draw_call(recorder.plan, recorder.draw)
        for _ in range(2):
            begin, answer = time.monotonic_ns(), None
            try:
                answer = await start(limiter, call, recorder.plan["own"])
            except TidegateError as error:
                answer = error
            wait, again = recorder.record(call, begin, answer)
            await asyncio.sleep(wait)
            if not again:
                break


async def run_tasks(limiter: AsyncLimiter, recorders: list[Recorder], over: threading.Event) -> None:
    await asyncio.gather(*(run_task(limiter, recorder, over) for recorder in recorders))


def main() -> None:
    # Each failure of the store would log a warning.
    logging.disable(logging.WARNING)
    plan = json.loads(sys.argv[1])
    options = {"timeout": plan["timeout"], "on_store_error": "raise", "deny_cache": 0.0}
    blocking = Limiter.from_file(plan["file"], store=plan["url"], **options)
    tasks = AsyncLimiter.from_file(plan["file"], store=plan["url"], **options)
    threads = [Recorder(plan, f"thread-{number}") for number in range(2)]
    awaited = [Recorder(plan, f"task-{number}") for number in range(2)]
    over = threading.Event()
    running = [threading.Thread(target=run_thread, args=(blocking, recorder, over)) for recorder in threads]
    running.append(threading.Thread(target=lambda: asyncio.run(run_tasks(tasks, awaited, over))))
    for thread in running:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    for thread in running:
        thread.join()
    for recorder in threads + awaited:
        for line in recorder.lines:
            print(line)


main()
