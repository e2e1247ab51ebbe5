"""The steps of every adapter for a request, from the application's first function to the last unit given back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transcripts import TRANSCRIPTS, cases, transcript
from web_adapter import Adapter

KNOWN = json.loads(TRANSCRIPTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_an_adapter_does_what_its_transcript_says(adapter: Adapter, case: dict[str, Any]) -> None:
    (group,) = [group for group in KNOWN[case["name"]] if adapter.name in group["adapters"]]
    assert transcript(adapter, case) == group["lines"]
