"""A faulty proxy, as a program: it repeats, drops, swaps or cuts some of the replies that pass it, or repeats bytes
of them.

    python3 faulty_proxy.py PORT [SEED [ONE_IN]]

It prints the port where it listens, corrupts one reply of ONE_IN (100), and ends with its standard input. Then it
prints the number of replies that it has corrupted.
"""

from __future__ import annotations

import asyncio
import random
import sys


class Corruption:
    """Corrupts the replies of one connection."""

    faults = 0

    def __init__(self, seed: int, one_in: int) -> None:
        self.random = random.Random(seed)
        self.one_in = one_in
        self.held = b""

    def passed(self, reply: bytes) -> tuple[bytes, bool]:
        """Returns the bytes to send instead of a reply, and True if the connection ends after them."""
        ends, out = False, reply
        if self.random.randrange(self.one_in) == 0:
            Corruption.faults += 1
            start = self.random.randrange(len(reply))
            stop = self.random.randint(start + 1, len(reply))
            kind = self.random.randrange(6)
            if kind == 0:
                out = reply * 2
            elif kind == 1:
                out = b""
            elif kind == 2 and not self.held:
                self.held = reply
                return b"", False
            elif kind == 3:
                out = reply[:stop] + reply[start:]
            elif kind == 4:
                out = reply[:start] + reply[stop:]
            else:
                out, ends = reply[:start], True
        out, self.held = out + self.held, b""
        return out, ends


def reply_end(data: bytes, at: int) -> int:
    """Returns the end of the reply that begins there, or -1 if a part of it is missing."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return -1
    kind, end = data[at], line + 2
    if kind == ord("$"):
        length = int(data[at + 1 : line])
        end += length + 2 if length >= 0 else 0
    elif kind == ord("*"):
        for _ in range(int(data[at + 1 : line])):
            end = reply_end(data, end) if end < len(data) else -1
            if end < 0:
                return -1
    return end if end <= len(data) else -1


async def send_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


async def send_replies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, corruption: Corruption) -> None:
    kept, ends = b"", False
    while not ends and (data := await reader.read(65_536)):
        kept += data
        at, out = 0, []
        while not ends and at < len(kept) and (end := reply_end(kept, at)) > 0:
            passed, ends = corruption.passed(kept[at:end])
            out.append(passed)
            at = end
        kept = kept[at:]
        writer.write(b"".join(out))
        await writer.drain()


async def serve(port: int, seed: int, one_in: int) -> None:
    async def relay(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        nonlocal seed
        seed += 1
        server, to_server = await asyncio.open_connection("127.0.0.1", port)
        ways = [send_requests(client, to_server), send_replies(server, to_client, Corruption(seed, one_in))]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        to_client.transport.abort()
        to_server.transport.abort()

    listener = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listener.close()
    print(Corruption.faults, flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    asyncio.run(serve(numbers[0], *(numbers[1:] + [1, 100][len(numbers) - 1 :])))
