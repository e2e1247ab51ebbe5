"""Stores of an application for tests: a table in memory with a lock, whole or with one defect."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from tidegate.stores import AsyncKeyValueStore, Change, KeyValueStore, Value


class Table(KeyValueStore):
    """Keeps everything that a store promises, unless it has a `defect`: a name in tests/stores/defects.json."""

    def __init__(self, defect: str = "") -> None:
        self.defect = defect
        self.all_or_none = defect in ("", "promises all or none")  # type: ignore[misc]
        self.lock = threading.Lock()
        self.values: dict[bytes, Any] = {}
        self.writes = 0
        self.made = time.time()

    def now(self) -> float:
        if self.defect == "has a clock that stands still":
            return self.made
        return time.time() * (1000 if self.defect == "returns milliseconds" else 1)

    def key(self, key: bytes) -> bytes:
        if self.defect == "cuts keys at a zero":
            return key.partition(b"\0")[0]
        return key.lower() if self.defect == "has keys without case" else key

    def value(self, key: bytes) -> Value | None:
        value, expires_at = self.values.get(self.key(key), (None, 0.0))
        if self.defect == "takes expires_at for milliseconds":
            return value if time.time() < expires_at / 1000 else None
        if self.defect == "drops a value at its second":
            return value if time.time() < int(expires_at) else None
        # A store may drop a value later.
        return value

    def swap(self, change: Change) -> Any:
        key, version, data, expires_at = change
        standing = self.value(key)
        if self.defect == "compares and writes in two steps":
            self.lock.release()
            time.sleep(0.005)
            self.lock.acquire()
        found = standing.version if standing else None
        if self.defect == "does not replace a version" and standing:
            return standing
        if found != version and self.defect != "ignores the version":
            if self.defect == "says done for the deletion of nothing" and standing is None and data is None:
                return True
            return None if self.defect == "says none for a lost swap" else standing
        self.writes += 1
        if data is None:
            self.values.pop(self.key(key), None)
            return True
        new: Any = self.writes
        if self.defect == "counts versions anew after a deletion":
            new = 1 if found is None else found + 1
        elif self.defect == "keeps the version of a swap" and standing:
            new = found
        if self.defect == "keeps text":
            data = data.decode(errors="replace").encode()
        elif self.defect == "cuts large values":
            data = data[:65_536]
        self.values[self.key(key)] = (Value(new, data), expires_at)
        return True

    def read(self, keys: Sequence[bytes], timeout: float) -> tuple[float | None, list[Value | None]]:
        with self.lock:
            if self.defect == "sorts the values":
                keys = sorted(keys)
            values = [self.value(key) for key in keys]
            if self.defect == "leaves out missing keys":
                values = [value for value in values if value]
            return self.now(), values

    def compare_and_swap(self, changes: Sequence[Change], timeout: float) -> tuple[float | None, list[Any]]:
        with self.lock:
            if self.defect == "writes the first change alone":
                return self.now(), [self.swap(changes[0]), *(self.value(change.key) for change in changes[1:])]
            standing = [self.value(change.key) for change in changes]
            are_free = all(
                (one.version if one else None) == change.version for one, change in zip(standing, changes, strict=True)
            )
            if self.all_or_none and not self.defect and not are_free:
                return self.now(), standing
            results = {change.key: self.swap(change) for change in changes}
            if self.defect == "sorts the results":
                return self.now(), [results[key] for key in sorted(results)]
            return self.now(), [results[change.key] for change in changes]

    def scan(self, prefix: bytes) -> Iterator[bytes]:
        begin = prefix[:6] if self.defect == "scans too much" else prefix
        with self.lock:
            found = [key for key in self.values if key.startswith(begin)]
        return iter(found[1:] if self.defect == "scans too little" else found)


class AsyncTable(AsyncKeyValueStore):
    """The same table, with methods that are `async def`."""

    def __init__(self, defect: str = "") -> None:
        self.table = Table(defect)
        self.all_or_none = self.table.all_or_none  # type: ignore[misc]

    async def read(self, keys: Sequence[bytes], timeout: float) -> tuple[float | None, list[Value | None]]:
        await asyncio.sleep(0)
        return self.table.read(keys, timeout)

    async def compare_and_swap(self, changes: Sequence[Change], timeout: float) -> tuple[float | None, list[Any]]:
        await asyncio.sleep(0)
        return self.table.compare_and_swap(changes, timeout)

    async def scan(self, prefix: bytes) -> AsyncIterator[bytes]:
        for key in self.table.scan(prefix):
            yield key


def own_store(kind: type) -> Any:
    """A table for a limiter of that class."""
    return AsyncTable() if kind.__name__.startswith("Async") else Table()
