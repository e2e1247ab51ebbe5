"""Calls that go out, from a process of its own: it says that it is ready, reads JSON of `outgoing_share.py`,
and writes its answers by their status."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

from outgoing_clients import CLIENTS, LoopClient
from tidegate import Limiter


def main(told: dict[str, Any]) -> None:
    kind = next(one for one in CLIENTS if one.name == told["client"])
    until: float = told["until"]
    answers: Counter[str] = Counter()
    options: dict[str, Any] = {"timeout": None}
    if told["tokens"]:
        options["cost"] = lambda request: {"tokens": json.loads(request.content)["tokens"]}

    def arguments() -> dict[str, Any]:
        if not told["tokens"]:
            return {"method": "GET", "url": told["url"]}
        body = {"tokens": random.randint(told["tokens"] // 2, told["tokens"])}
        return {"method": "POST", "url": told["url"], "content": json.dumps(body).encode()}

    def count(answer: Any) -> None:
        answers[str(answer.status)] += 1

    with Limiter(told["store"], prefix=told["prefix"]) as limiter, kind(limiter, told["policy"], **options) as client:

        def call() -> None:
            while time.time() < until:
                count(client.call(**arguments()))

        async def acall() -> None:
            while time.time() < until:
                count(await client.acall(**arguments()))

        async def all_callers() -> None:
            tasks = [asyncio.ensure_future(acall()) for _ in range(told["callers"])]
            # What still waits has nothing to wait for.
            _, late = await asyncio.wait(tasks, timeout=max(0.0, until + 0.5 - time.time()))
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if isinstance(client, LoopClient):
            client.run(all_callers())
        else:
            threads = [threading.Thread(target=call, daemon=True) for _ in range(told["callers"])]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(max(0.0, until + 0.5 - time.time()))
        print(json.dumps(answers), flush=True)
        if not isinstance(client, LoopClient):
            # Threads that wait for a turn do not keep the process.
            os._exit(0)


if __name__ == "__main__":
    print("ready", flush=True)
    main(json.loads(sys.stdin.readline()))
