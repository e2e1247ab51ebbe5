"""Compresses a file with Zstandard, as small as it gets.

python docs/site/packed.py FILE PACKED
"""

from __future__ import annotations

import sys
from pathlib import Path

import zstandard

SMALLEST = 22

if __name__ == "__main__":
    source, packed = map(Path, sys.argv[1:])
    packed.write_bytes(zstandard.ZstdCompressor(level=SMALLEST).compress(source.read_bytes()))
