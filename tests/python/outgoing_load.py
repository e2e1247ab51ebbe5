"""Makes outgoing calls from a separate process. It prints that it is ready, reads JSON from `outgoing_share.py`, and
writes the number of answers by status, and when it sent the requests that were refused."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from itertools import count
from typing import Any

import aiohttp

from outgoing_clients import CLIENTS, Aiohttp, AsyncHttpx, LoopClient
from tidegate import Limiter


def tells_when_it_sends(client: Any) -> Any:
    """Returns options of a call that note in a list when its request leaves, after its turn. Threads note nothing."""
    if isinstance(client, Aiohttp):

        async def note(_: Any, context: Any, __: Any) -> None:
            context.trace_request_ctx.append(time.time())

        config = aiohttp.TraceConfig()
        config.on_request_headers_sent.append(note)
        config.freeze()
        client.session.trace_configs.append(config)
        return lambda sent: {"trace_request_ctx": sent}
    if isinstance(client, AsyncHttpx):

        def traced(sent: list[float]) -> dict[str, Any]:
            async def trace(event: str, _: Any) -> None:
                if event.endswith("send_request_headers.started"):
                    sent.append(time.time())

            return {"extensions": {"trace": trace}}

        return traced
    return lambda sent: {}


def main(told: dict[str, Any]) -> None:
    kind = next(one for one in CLIENTS if one.name == told["client"])
    until: float = told["until"]
    answers: Counter[str] = Counter()
    options: dict[str, Any] = {"timeout": None}
    if told["tokens"]:
        options["cost"] = lambda request: {"tokens": json.loads(request.content)["tokens"]}

    numbers = count()
    # The times at which refused requests were sent, by their target.
    refused: dict[str, float] = {}

    def arguments(number: int) -> dict[str, Any]:
        url = f"{told['url']}&call={os.getpid()}-{number}"
        if not told["tokens"]:
            return {"method": "GET", "url": url}
        body = {"tokens": random.randint(told["tokens"] // 2, told["tokens"])}
        return {"method": "POST", "url": url, "content": json.dumps(body).encode()}

    def note(answer: Any, sent: list[float]) -> None:
        answers[str(answer.status)] += 1
        if answer.status == 429 and sent:
            refused[answer.url[answer.url.index("/", len("http://")) :]] = sent[-1]

    with (
        Limiter(told["store"], prefix=told["prefix"], timeout=5) as limiter,
        kind(limiter, told["policy"], **options) as client,
    ):
        traced = tells_when_it_sends(client)

        def call() -> None:
            while time.time() < until:
                note(client.call(**arguments(next(numbers))), [])

        async def acall() -> None:
            while time.time() < until:
                sent: list[float] = []
                note(await client.acall(**arguments(next(numbers)), **traced(sent)), sent)

        async def all_callers() -> None:
            tasks = [asyncio.ensure_future(acall()) for _ in range(told["callers"])]
            # The time is over, so a call that still waits has nothing to wait for.
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
        print(json.dumps({"answers": answers, "sent": refused}), flush=True)
        if not isinstance(client, LoopClient):
            # Threads that wait for a turn must not keep the process alive.
            os._exit(0)


if __name__ == "__main__":
    print("ready", flush=True)
    main(json.loads(sys.stdin.readline()))
