"""HTTP servers that keep strict books of their admissions, as a program.

    python3 strict_server.py

It prints the URL of its control as JSON. A POST there with the description of a `strict.service.Service` starts one on
its own port and answers with its URL. The program ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys

from strict.http import read_request, write_response
from strict.service import Service


async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await read_request(reader)
    while request is not None:
        try:
            answer = {"ok": True, "url": await Service(json.loads(request.body)).listen()}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"ok": False, "error": repr(error)}
        await write_response(writer, request, 200, {}, answer)
        request = await read_request(reader)
    writer.close()


async def main() -> None:
    listener = await asyncio.start_server(control, "127.0.0.1", 0)
    print(json.dumps({"ok": True, "url": f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
