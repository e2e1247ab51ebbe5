"""A service in the wire format of OpenAI and of Anthropic, as a program.

    python3 model_server.py

It prints its URL as JSON, and ends with its standard input. The last message of a call sets its usage, for example
`read 30, answer 12`. A call with `refuse 500 2 times` is refused twice, with status 500. A stream with `wait` pauses
after its first word until someone requests `/-/go`.
`/-/calls` has the usage of each call, and whether its answer was written to its end.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from strict.http import Request, read_request, write_response, write_stream

CALLS: list[dict[str, Any]] = []
# The number of calls with each text.
REFUSED: Counter[str] = Counter()
# Streams of calls with `wait` wait for this after their first word.
GO = asyncio.Event()


def event(data: dict[str, Any], name: str = "") -> bytes:
    return f"{f'event: {name}' + chr(10) if name else ''}data: {json.dumps(data)}\n\n".encode()


def texts(value: Any) -> str:
    """Returns all texts of a message."""
    if isinstance(value, dict):
        return " ".join(texts(one) for one in value.values())
    return " ".join(map(texts, value)) if isinstance(value, list) else str(value)


class Call:
    """A call with its usage."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        asked = texts(body.get("messages") or body.get("input"))
        found = re.search(r"read (\d+), answer (\d+)", asked)
        read, answer = (int(found[1]), int(found[2])) if found else (10, 5)
        bound = body.get("max_tokens") or body.get("max_completion_tokens") or body.get("max_output_tokens") or answer
        self.path, self.body, self.read, self.answer = path, body, read, min(answer, bound)
        self.waits = "wait" in asked
        self.words = ["word "] * self.answer
        self.noted = {"path": path, "read": self.read, "answer": self.answer, "ended": False}
        CALLS.append(self.noted)

    async def pause(self) -> None:
        if self.waits:
            await GO.wait()

    def whole(self) -> dict[str, Any]:
        text, model = "".join(self.words), self.body.get("model")
        if self.path == "/v1/chat/completions":
            message = {"role": "assistant", "content": text}
            return {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": self.usage_of_chat(),
            }
        if self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            usage = {"prompt_tokens": self.read, "total_tokens": self.read}
            return {"object": "list", "model": model, "data": data, "usage": usage}
        if self.path == "/v1/responses":
            return self.response(text, self.usage_of_responses())
        usage = {**self.usage_of_messages(), "output_tokens": self.answer}
        return self.message([{"type": "text", "text": text}], usage, "end_turn")

    def usage_of_chat(self) -> dict[str, int]:
        tokens = {"prompt_tokens": self.read, "completion_tokens": self.answer}
        return {**tokens, "total_tokens": self.read + self.answer}

    def usage_of_responses(self) -> dict[str, Any]:
        return {
            "input_tokens": self.read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.answer,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.read + self.answer,
        }

    def usage_of_messages(self) -> dict[str, int]:
        return {"input_tokens": self.read, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 7_000}

    def response(self, text: str | None, usage: dict[str, Any] | None) -> dict[str, Any]:
        content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
        return {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "status": "in_progress" if usage is None else "completed",
            "model": self.body.get("model"),
            "output": [] if text is None else [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }

    def message(self, content: list[Any], usage: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": self.body.get("model"),
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    async def events(self) -> AsyncIterator[bytes]:
        of = {"/v1/chat/completions": self.chat_events, "/v1/responses": self.response_events}
        async for one in of.get(self.path, self.message_events)():
            yield one
        self.noted["ended"] = True

    async def chat_events(self) -> AsyncIterator[bytes]:
        included = (self.body.get("stream_options") or {}).get("include_usage")
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": self.body.get("model")}
        rest = {"usage": None} if included else {}
        for index, word in enumerate(self.words):
            if index == 1:
                await self.pause()
            choice = {"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}
            yield event({**chunk, "choices": [choice], **rest})
        yield event({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **rest})
        if included:
            yield event({**chunk, "choices": [], "usage": self.usage_of_chat()})
        yield b"data: [DONE]\n\n"

    async def response_events(self) -> AsyncIterator[bytes]:
        number = 0

        def of(kind: str, **fields: Any) -> bytes:
            nonlocal number
            number += 1
            return event({"type": kind, "sequence_number": number, **fields}, kind)

        yield of("response.created", response=self.response(None, None))
        place = {"output_index": 0, "content_index": 0, "item_id": "m"}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        yield of("response.output_item.added", output_index=0, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield of("response.content_part.added", **place, part=part)
        for index, word in enumerate(self.words):
            if index == 1:
                await self.pause()
            yield of("response.output_text.delta", **place, delta=word, logprobs=[])
        text = "".join(self.words)
        yield of("response.output_text.done", **place, text=text, logprobs=[])
        yield of("response.content_part.done", **place, part={**part, "text": text})
        whole = self.response(text, self.usage_of_responses())
        yield of("response.output_item.done", output_index=0, item=whole["output"][0])
        yield of("response.completed", response=whole)

    async def message_events(self) -> AsyncIterator[bytes]:
        usage = {**self.usage_of_messages(), "output_tokens": 1}
        yield event({"type": "message_start", "message": self.message([], usage, None)}, "message_start")
        block = {"type": "text", "text": ""}
        yield event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start")
        yield event({"type": "ping"}, "ping")
        for index, word in enumerate(self.words):
            if index == 1:
                await self.pause()
            delta = {"type": "text_delta", "text": word}
            yield event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        usage = {"output_tokens": self.answer}
        yield event({"type": "message_delta", "delta": ended, "usage": usage}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")


def refusal(body: dict[str, Any]) -> int | None:
    """Returns the status for a call with `refuse 500 2 times`. After that many calls it returns None."""
    asked = texts(body.get("messages") or body.get("input"))
    found = re.search(r"refuse (\d+) (\d+) times", asked)
    REFUSED[asked] += 1
    return int(found[1]) if found and REFUSED[asked] <= int(found[2]) else None


async def answer(writer: asyncio.StreamWriter, request: Request) -> None:
    if request.path == "/-/calls":
        await write_response(writer, request, 200, {}, CALLS)
    elif request.path == "/-/go":
        GO.set()
        await write_response(writer, request, 200, {}, {})
    elif request.path == "/v1/models":
        await write_response(writer, request, 200, {}, {"object": "list", "data": []})
    elif status := refusal(json.loads(request.body)):
        await write_response(writer, request, status, {}, {"type": "error", "error": {"type": "e", "message": "No."}})
    else:
        call = Call(request.path, json.loads(request.body))
        if call.body.get("stream"):
            fields = {"Content-Type": "text/event-stream; charset=utf-8"}
            await write_stream(writer, request, 200, fields, call.events())
        else:
            await write_response(writer, request, 200, {}, call.whole())
            call.noted["ended"] = True


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while (request := await read_request(reader)) is not None:
            await answer(writer, request)
    except (ConnectionError, asyncio.CancelledError):
        # The caller has gone, or the program ends.
        pass
    finally:
        writer.close()


async def main() -> None:
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
