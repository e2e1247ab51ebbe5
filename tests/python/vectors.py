"""Runs `tests/vectors/*.json` through either limiter. The README there explains their fields."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from decision_fields import fields_of
from tidegate import AsyncLimiter, Decision, Limiter, ManualClock, PolicyError, RateLimited, TidegateError
from waiting_calls import TaskCall, ThreadCall, WaitingCall

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
START = 1_704_067_200_000_000
# Keys in Redis expire in real time, so a case that fails there after a longer run is repeated.
MAX_SECONDS = 0.25

_numbers = itertools.count()


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Returns every case and its name."""
    files = [path for path in sorted(FOLDER.glob("*.json")) if not path.name.endswith(".schema.json")]
    return [(f"{path.stem}: {case['name']}", case) for path in files for case in json.loads(path.read_text())["cases"]]


def agrees(found: Any, wanted: Any) -> bool:
    """True if everything that is wanted was found. All other fields may have any value."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and agrees(found[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(agrees, found, wanted))
    return bool(found == wanted and isinstance(found, bool) == isinstance(wanted, bool))


def literal(value: Any) -> Any:
    """Returns the value. A repeated text, or a number that JSON cannot write, has a special notation."""
    if isinstance(value, dict) and "repeat" in value:
        return str(value["repeat"]) * int(value["times"])
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    if isinstance(value, dict):
        return {name: literal(number) for name, number in value.items()}
    return value


def policies(written: dict[str, Any]) -> dict[str, Any]:
    return {"p": written["policy"]} if "policy" in written else dict(written["policies"])


def cancels(case: dict[str, Any]) -> bool:
    """True if the case cancels calls, because no one can cancel a thread."""
    return any(step["do"] == "cancel" for step in case["steps"])


def found_of(answer: Any) -> dict[str, Any]:
    """Returns the fields of a Decision, or of the Decision of a hold."""
    decision = getattr(answer, "decision", answer)
    return fields_of(decision) if isinstance(decision, Decision) else {}


async def run(case: dict[str, Any], kind: type[Limiter] | type[AsyncLimiter], store: Any) -> None:
    for attempt in itertools.count(1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            one = Run(case, kind, store, Path(folder) / "policies.json")
            try:
                await one.steps()
            except AssertionError:
                if not str(store).startswith("redis") or time.monotonic() - began < MAX_SECONDS or attempt == 10:
                    raise
            else:
                return
            finally:
                await one.end()


class Run:
    """A run of one case, on its own limiter."""

    def __init__(self, case: dict[str, Any], kind: type[Limiter] | type[AsyncLimiter], store: Any, path: Path) -> None:
        self.case = case
        self.start = case.get("start", START)
        self.clock = ManualClock(self.start / 1e6)
        self.path = path
        self.named: dict[str, Any] = {}
        self.waiting: dict[str, WaitingCall] = {}
        self.write(policies(case))
        self.limiter: Any = kind.from_file(
            path, store, prefix=f"vec{os.getpid()}-{next(_numbers)}", timeout=10.0, clock=self.clock
        )

    def write(self, written: dict[str, Any]) -> None:
        self.path.write_text(json.dumps({"policies": written}))

    async def end(self) -> None:
        """Ends the waiting calls of a case that has failed."""
        if self.waiting:
            closed = self.limiter.close()
            if inspect.isawaitable(closed):
                await closed

    async def steps(self) -> None:
        for number, step in enumerate(self.case["steps"], 1):
            if "at" in step:
                self.clock.set((self.start + step["at"]) / 1e6)
            for _ in range(step.get("times", 1) - 1):
                await self.act(step)
                self.clock.advance(step.get("every", 0) / 1e6)
            try:
                found = await self.act(step)
            except TidegateError as error:
                column = error.column if isinstance(error, PolicyError) else None
                found = {"error": error.code, "column": column, "message": str(error)}
            # Only in Rust a Decision has the time at which it was made.
            wanted = {name: value for name, value in step.get("expect", {}).items() if name != "at"}
            context = f"step {number}: {json.dumps(step)}\nfound {found}"
            assert "error" in wanted or "error" not in found, context
            words = wanted.pop("says", None)
            assert words is None or words in found["message"], context
            assert agrees(found, wanted), context

    async def act(self, step: dict[str, Any]) -> dict[str, Any]:
        if step["do"] in ("await", "cancel", "waits") or "timeout" in step:
            return await self.act_waiting(step)
        if step.get("eventually"):
            return await self.act_eventually(step)
        try:
            answer = await self.answer(step)
        except RateLimited as full:
            # `hold` raises when it is denied.
            assert step["do"] == "hold"
            return found_of(full.decision)
        if "as" in step:
            self.named[step["as"]] = answer
        if step["do"] == "journal":
            attempts = [
                {"at": round(one.at * 1e6) - self.start, "allowed": one.allowed, "cost": one.cost, "meta": one.meta}
                for one in answer
            ]
            return {"attempts": attempts}
        return found_of(answer)

    async def act_waiting(self, step: dict[str, Any]) -> dict[str, Any]:
        """Begins a call that may wait, or continues one."""
        name = step.get("of", step.get("as", ""))
        if "timeout" in step:
            about = (step.get("policy", "p"), literal(step["key"]))
            names = ("cost", "priority", "meta")
            timeout = None if step["timeout"] is None else step["timeout"] / 1e6
            kind = TaskCall if isinstance(self.limiter, AsyncLimiter) else ThreadCall
            options = {option: literal(step[option]) for option in names if option in step}
            self.waiting[name] = kind(self.limiter, self.clock, step["do"], about, {**options, "timeout": timeout})
            if "waiting" not in step:
                return await self.answer_of(name)
        call = self.waiting[name]
        if step["do"] == "await":
            return await self.answer_of(name)
        if step["do"] == "cancel":
            await call.cancel()
            del self.waiting[name]
        if "waiting" in step:
            await call.until(lambda: self.limiter.waiting(*call.about) == step["waiting"])
        if step["do"] != "cancel":
            # While the ping goes to the store and back, a call that has begun or was woken has time to be answered.
            pinged = self.limiter.ping()
            if inspect.isawaitable(pinged):
                await pinged
        assert step["do"] == "cancel" or not call.is_answered(), f"{name} is answered already"
        return {}

    async def answer_of(self, name: str) -> dict[str, Any]:
        """Returns the answer of a call, which has to come at this moment of the clock."""
        call = self.waiting.pop(name)
        await call.until(call.is_answered)
        answered_at, answer = call.answer()
        assert answered_at == self.clock.now(), f"{name} was answered {self.clock.now() - answered_at} s before"
        self.named[name] = answer
        return found_of(answer)

    async def act_eventually(self, step: dict[str, Any]) -> dict[str, Any]:
        """Peeks until the answer is the expected one, or until 20 seconds have passed."""
        deadline = time.monotonic() + 20
        while True:
            found = found_of(await self.answer(step))
            if agrees(found, step["expect"]) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.001)

    async def answer(self, step: dict[str, Any]) -> Any:
        do, limiter = step["do"], self.limiter
        about = (step.get("policy", "p"), literal(step.get("key")))
        cost = {"cost": literal(step["cost"])} if "cost" in step else {}
        meta = {"meta": literal(step["meta"])} if "meta" in step else {}
        # Only some calls name a class.
        priority = {"priority": step["priority"]} if "priority" in step else {}
        answer: Any
        if do == "change":
            self.write(policies(step))
            answer = limiter.reload()
        elif do == "check":
            answer = limiter.check(*about, **cost, **meta, **priority, partial=step.get("partial", False))
        elif do == "charge":
            answer = limiter.charge(*about, cost.get("cost", 1))
        elif do in ("peek", "refund"):
            answer = getattr(limiter, do)(*about, **cost, **priority)
        elif do == "settle":
            named, cost = self.named[step["of"]], literal(step["cost"])
            answer = limiter.settle(named, cost) if isinstance(named, Decision) else named.settle(cost)
        elif do == "hold":
            answer = limiter.hold(*about, **cost, **priority)
        elif do == "release":
            answer = self.named.pop(step["of"]).release()
        elif do == "block":
            answer = limiter.block(*about, step["for"] / 1e6)
        elif do == "override":
            answer = limiter.override(*about, step["limits"], ttl=step["ttl"] / 1e6 if "ttl" in step else None)
        elif do in ("unblock", "clear", "journal"):
            answer = getattr(limiter, do)(*about)
        else:
            assert do == "check_all", do
            answer = limiter.check_all(
                [
                    (entry["policy"], literal(entry["key"]), entry.get("cost", 1), None, entry.get("priority"))
                    for entry in step["entries"]
                ]
            )
        return await answer if inspect.isawaitable(answer) else answer
