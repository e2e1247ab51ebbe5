"""`tidegate.llm`: the costs of model calls. The calls are vectors, in `tests/http/llm.json`."""

from __future__ import annotations

import gc
import json
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from paths import ROOT
from tidegate import ConfigError, CostError, Limiter, ManualClock, Policy
from tidegate._content_decoder import decoder
from tidegate._never_fits import never_fits
from tidegate.llm import LlmPreset, anthropic_preset, openai_preset
from tidegate.outgoing import SettleReader

PRESETS: dict[str, Callable[..., LlmPreset]] = {"openai": openai_preset, "anthropic": anthropic_preset}


class Request:
    """A request in the form that a transport passes to `cost`."""

    def __init__(self, path: str = "/v1/chat/completions", content: Any = b"", **body: Any) -> None:
        self.method, self.url = "POST", f"https://api.example.com{path}"
        self.headers: dict[str, str] = {}
        self.content = json.dumps(body).encode() if body else content


class Response:
    """The head of a response in the form that a transport passes to `settle`."""

    def __init__(self, request: Any, status: int = 200) -> None:
        self.status_code, self.request = status, request
        self.headers: dict[str, str] = {}


def reader(preset: LlmPreset, request: Any) -> SettleReader:
    found = preset["settle"](Response(request))
    assert isinstance(found, SettleReader)
    return found


def chat(text: str = "Say hello.", **more: Any) -> Request:
    return Request(model="m", messages=[{"role": "user", "content": text}], max_tokens=100, **more)


def cases() -> list[Any]:
    found = json.loads((ROOT / "tests" / "http" / "llm.json").read_text())["cases"]
    assert len(found) > 30
    return [pytest.param(case, id=case["name"]) for case in found]


@pytest.mark.parametrize("case", cases())
def test_a_vector(case: dict[str, Any]) -> None:
    options = dict(case.get("options", {}))
    if "units" in options:
        options["units"] = tuple(options["units"])
    preset = PRESETS[case["preset"]](**options)
    for call in case["calls"]:
        for _ in range(call.get("times", 1) if "path" in call else 0):
            content = call["body"] if "body" in call else json.dumps(call["request"]) if "request" in call else ""
            request = Request(call["path"], content.encode())
            charge = preset["cost"](request)
            assert charge == call.get("charge", charge)
            chunks = [json.dumps(call["answer"])] if "answer" in call else call.get("chunks")
            if chunks is None:
                continue
            passing = preset["settle"](Response(request, call.get("status", 200)))
            for chunk in chunks:
                if passing is not None:
                    passing.feed(chunk.encode())
            cost = None if passing is None else passing.end()
            assert cost == call.get("cost", cost)


def test_a_preset_is_options_of_a_transport() -> None:
    assert set(openai_preset()) == set(anthropic_preset()) == {"cost", "settle", "respond", "learn"}
    preset = openai_preset(priority="batch", learn=False)
    assert (preset["priority"], preset["learn"], preset["respond"]) == ("batch", False, True)


def test_a_tokenizer_counts_the_texts() -> None:
    texts: list[str] = []

    def tokenizer(text: str) -> int:
        texts.append(text)
        return 50

    request = chat(tools=[{"type": "function"}])
    # 50 for each text, (16 + 12 + 64) / 4 for the bytes around them, 100 for the answer.
    assert openai_preset(tokenizer=tokenizer)["cost"](request) == {"tokens": 2 * 50 + 23 + 100}
    assert texts == ["Say hello.", '[{"type":"function"}]']
    assert openai_preset(tokenizer=list)["cost"](chat()) == {"tokens": 10 + 7 + 100}
    wrongs: list[Any] = [lambda _: None, lambda _: 1.5, lambda _: -1]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="tokenizer returned"):
            openai_preset(tokenizer=wrong)["cost"](chat())

    def broken(_: str) -> int:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        openai_preset(tokenizer=broken)["cost"](chat())


def test_bodies_of_every_client() -> None:
    content = chat().content
    charge = {"tokens": 110}
    for body in (content, bytearray(content), memoryview(content), content.decode()):
        assert openai_preset()["cost"](Request(content=body)) == charge

    class Prepared:
        """The request of requests."""

        url, body = "https://api.example.com/v1/chat/completions?a=b", content

    assert openai_preset()["cost"](Prepared()) == charge

    class Unread:
        """The request of httpx with a stream as its body."""

        url = "https://api.example.com/v1/chat/completions"

        @property
        def content(self) -> bytes:
            raise RuntimeError("attempted to access streaming request content")

    assert openai_preset()["cost"](Unread()) == {"tokens": 0}
    assert openai_preset()["cost"](Request(content=None)) == {"tokens": 0}


def test_answers_of_two_presets_and_of_many_calls_do_not_mix() -> None:
    one, other = openai_preset(output="used"), openai_preset(output="used")
    requests = [chat() for _ in range(20)]
    for request in requests:
        one["cost"](request)
    assert other["settle"](Response(requests[0])) is None
    readers = [reader(one, request) for request in requests]
    for number, passing in enumerate(readers):
        passing.feed(b'{"usage": {"prompt_tokens": 1, "completion_')
        passing.feed(b'tokens": %d}}' % number)
    assert [passing.end() for passing in readers] == [{"tokens": 1 + number} for number in range(20)]


def test_a_call_without_a_response_is_forgotten() -> None:
    preset = openai_preset()
    request = chat()
    preset["cost"](request)
    gone = weakref.ref(request)
    del request
    gc.collect()
    assert gone() is None


def test_a_second_attempt_is_a_call_of_its_own() -> None:
    preset = openai_preset()
    request = chat()
    for _ in range(2):
        preset["cost"](request)
        assert reader(preset, request).end() is None
        assert preset["settle"](Response(request)) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tokenizer": 7}, "tokenizer cannot be 7"),
        ({"units": "tokens"}, "units cannot be"),
        ({"units": ()}, "units cannot be"),
        ({"units": ("words",)}, "units cannot be"),
        ({"output": "later"}, "output cannot be"),
        ({"default_output": -1}, "default_output cannot be -1"),
        ({"default_output": True}, "default_output cannot be True"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, Any], says: str) -> None:
    for preset in PRESETS.values():
        with pytest.raises(ConfigError, match=says):
            preset(**options)


def test_a_call_that_never_fits_says_so() -> None:
    limiter = Limiter(clock=ManualClock())
    policy = "500 requests/minute; 90000 tokens/minute"
    decision = limiter.acquire(policy, "k", {"tokens": 120_000}, timeout=60)
    assert not decision and decision.retry_after is None
    error = never_fits(decision)
    assert isinstance(error, CostError)
    for said in ("120000 tokens", "at most 90000", "Make the call smaller", "raise the limit"):
        assert said in str(error)
    assert never_fits(limiter.check(policy, "k", {"tokens": 90_000})) is None
    # The missing tokens come back later.
    assert never_fits(limiter.check(policy, "k", {"tokens": 90_000})) is None
    assert never_fits(limiter.check(Policy("5/minute", shadow=True), "k", 7)) is None
    # A limit of 0 admits nothing, whatever the cost is.
    assert never_fits(limiter.check("0/minute", "k")) is None
    assert "a call of 7 units" in str(never_fits(limiter.check("5/minute", "k", 7)))


def test_bodies_are_decoded() -> None:
    said = b'{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}' * 40

    def packed(bits: int) -> bytes:
        packer = zlib.compressobj(wbits=bits)
        return packer.compress(said) + packer.flush()

    for coding, body in [
        ("", said),
        ("identity", said),
        ("gzip", packed(31)),
        ("X-GZIP", packed(31) + packed(31)),
        ("deflate", packed(15)),
        ("deflate", packed(-15)),
    ]:
        for size in (1, 7, 10_000):
            found = decoder({"content-encoding": coding} if coding else {})
            assert found is not None
            read = b"".join(found.decode(body[at : at + size]) for at in range(0, len(body), size))
            assert read == (said * 2 if coding == "X-GZIP" else said), (coding, size)
    assert decoder({"content-encoding": "gzip, br"}) is None
    assert decoder({"content-encoding": "unknown"}) is None
    damaged = decoder({"content-encoding": "gzip"})
    assert damaged is not None
    assert damaged.decode(b"no gzip") == damaged.decode(packed(31)) == b""
    # A small body that unpacks to 64 MiB is not unpacked to its end.
    bomb = zlib.compress(bytes(64 << 20))
    found = decoder({"content-encoding": "deflate"})
    assert found is not None
    assert len(found.decode(bomb)) <= 2 << 20
