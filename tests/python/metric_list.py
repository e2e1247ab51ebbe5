"""The metrics that docs/metrics.md lists. Every exporter has exactly these."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


class Listed(NamedTuple):
    """A line of the list."""

    kind: str
    labels: tuple[str, ...]
    dotted: str


def listed() -> dict[str, Listed]:
    """Returns the metrics by their names in Prometheus."""
    line = re.compile(r"^\| `(tidegate_\w+)` \| (\w+) \| ([^|]*) \| `(tidegate\.[\w.]+)` \|", re.MULTILINE)
    found = {}
    for name, kind, labels, dotted in line.findall(DOCUMENT.read_text(encoding="utf-8")):
        found[name] = Listed(kind, tuple(re.findall(r"`(\w+)`", labels)), dotted)
    assert len(found) > 15, "docs/metrics.md has no list of metrics"
    return found
