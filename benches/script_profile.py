"""Counts the Lua instructions that the Redis script takes for a decision, by the functions of the script.

    python benches/script_profile.py charge "gcra 1000000/s"

It starts a Redis, captures a batch of 256 callers, and runs the script with that batch in the program lua5.1, which
must be installed. The calls are check, peek, charge, settle and hold.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "servers"))

from client import Servers
from tidegate import AsyncLimiter

SCRIPT = HERE.parent / "core/src/store/redis/script/golden/script.lua.txt"
CALLERS = 256
# Where the first argument of a call has its grouping, and the grouping that the loops for checks serve.
GROUPING, CHECKS = 9, 4
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


async def call(limiter: Any, name: str, key: str) -> None:
    if name == "hold":
        hold = await limiter.hold("p", key)
        await hold.release()
    elif name == "settle":
        await limiter.settle(await limiter.check("p", key, 2), 1)
    else:
        await getattr(limiter, name)("p", key, 1)


async def calls(url: str, name: str, policy: str, monitor: socket.socket) -> None:
    limiter = AsyncLimiter(url, policies={"p": policy})

    async def caller(number: int) -> None:
        for _ in range(4):
            await call(limiter, name, f"user:{number}")

    await asyncio.gather(*map(caller, range(CALLERS)))
    # From here on the server knows the script, and the keys exist.
    monitor.sendall(b"MONITOR\r\n")
    monitor.recv(64)
    await asyncio.gather(*map(caller, range(CALLERS)))
    await limiter.close()


def seen(monitor: socket.socket) -> str:
    monitor.settimeout(0.5)
    text = b""
    try:
        while part := monitor.recv(1 << 20):
            text += part
    except TimeoutError:
        pass
    return text.decode("latin1")


def batches(text: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The keys and arguments of each script call that a client has sent."""
    for line in text.split("\r\n"):
        words = [word.encode("latin1").decode("unicode_escape").encode("latin1") for word in WORD.findall(line)]
        if words[:1] == [b"EVALSHA"] and " lua]" not in line:
            count = int(words[2])
            yield words[3 : 3 + count], words[3 + count :]


def size(batch: tuple[list[bytes], list[bytes]]) -> tuple[bool, int]:
    """For the largest batch. Batches of the slow path come first, which are those that no loop for checks serves."""
    keys, arguments = batch
    return arguments[0][GROUPING] != CHECKS, len(keys)


def as_lua(words: list[bytes]) -> str:
    return "{" + ",".join('"' + "".join(f"\\{byte:03d}" for byte in word) + '"' for word in words) + "}"


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    servers = Servers("single")
    try:
        host, port = re.findall(r"//([^:/]+):(\d+)", servers.url)[0]
        with socket.create_connection((host, int(port))) as monitor:
            asyncio.run(calls(servers.url, *sys.argv[1:], monitor))
            keys, arguments = max(batches(seen(monitor)), key=size)
    finally:
        servers.close()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(f"return {{ keys = {as_lua(keys)}, arguments = {as_lua(arguments)} }}\n")
        file.flush()
        subprocess.run(["lua5.1", str(HERE / "script_profile.lua"), str(SCRIPT), file.name], check=True)


if __name__ == "__main__":
    main()
