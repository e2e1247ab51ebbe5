"""`tidegate.llm` with the real clients of OpenAI and Anthropic, against a local service of their wire format."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from model_services import ModelServer
from tidegate import AsyncLimiter, CostError, Limiter, ManualClock, Policy
from tidegate.llm import anthropic_preset, openai_preset

if sys.version_info < (3, 11):
    pytest.skip("the clients want a newer Python", allow_module_level=True)

import httpx2

from tidegate.httpx2 import AsyncPacedTransport, PacedTransport

if TYPE_CHECKING:
    import anthropic
    import openai

POLICY = "500 requests/minute; 90000 tokens/minute"
SPLIT = "500 requests/minute; 50000 input-tokens/minute; 20000 output-tokens/minute"


@pytest.fixture(scope="module", autouse=True)
def clients() -> None:
    """Imports them when a test runs. It takes seconds, and each worker of pytest reads this file."""
    global anthropic, openai
    import anthropic
    import openai


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


def asked(policy: str) -> Any:
    """Returns the policy in the form that a transport uses."""
    paced = getattr(Policy(policy), "paced", None)
    return policy if paced is None else paced()


def used(limiter: Any, policy: str, server: ModelServer) -> dict[str, int]:
    """Returns the units of each limit that calls to the service have used, on a clock that stands still."""
    decision = limiter.peek(asked(policy), f"out:{server.url}", dict.fromkeys(_units(policy), 0))
    return {str(state.unit): state.limit - state.remaining for state in decision.limits}


def _units(policy: str) -> list[str]:
    return [limit.split()[1].split("/")[0] for limit in policy.split("; ")]


def chat(read: int, answer: int, **more: Any) -> dict[str, Any]:
    said = (" wait" if more.pop("wait", False) else "") + more.pop("text", "")
    message = {"role": "user", "content": f"read {read}, answer {answer}{said}"}
    return {"model": "m", "messages": [message], "max_tokens": 100, **more}


@pytest.fixture
def limiter() -> Limiter:
    return Limiter(clock=ManualClock())


def openai_client(limiter: Limiter, server: ModelServer, policy: str = POLICY, **options: Any) -> Any:
    http_client = httpx2.Client(transport=PacedTransport(limiter, policy, **options))
    return server.client(openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http_client))


def anthropic_client(limiter: Limiter, server: ModelServer, policy: str = SPLIT, **options: Any) -> Any:
    http_client = httpx2.Client(transport=PacedTransport(limiter, policy, **options))
    return server.client(anthropic.Anthropic(api_key="k", base_url=server.url, http_client=http_client))


def test_openai_settles_exactly(limiter: Limiter, server: ModelServer) -> None:
    client = openai_client(limiter, server, **openai_preset(output="used"))
    tokens = 0

    def spent(read: int, answer: int) -> None:
        nonlocal tokens
        tokens += read + answer
        assert used(limiter, POLICY, server)["tokens"] == tokens

    assert client.chat.completions.create(**chat(321, 12)).choices[0].message.content == "word " * 12
    spent(321, 12)
    stream = client.chat.completions.create(**chat(33, 40, stream=True, stream_options={"include_usage": True}))
    assert sum(len(chunk.choices) for chunk in stream) == 41
    spent(33, 40)
    assert client.responses.create(model="m", input="read 50, answer 7").output_text == "word " * 7
    spent(50, 7)
    events = [one.type for one in client.responses.create(model="m", input="read 60, answer 9", stream=True)]
    assert events[-1] == "response.completed"
    spent(60, 9)
    assert client.embeddings.create(model="e", input=["read 17, answer 0"], encoding_format="float").data
    spent(17, 0)
    assert client.models.list().data == []
    spent(0, 0)
    assert used(limiter, POLICY, server)["requests"] == 6


def test_openai_counts_the_bound(limiter: Limiter, server: ModelServer) -> None:
    client = openai_client(limiter, server, **openai_preset())
    client.chat.completions.create(**chat(321, 12))
    assert used(limiter, POLICY, server) == {"requests": 1, "tokens": 421}


def test_a_stream_without_usage_stays_as_it_was_charged(limiter: Limiter, server: ModelServer) -> None:
    client = openai_client(limiter, server, **openai_preset(output="used"))
    for _ in client.chat.completions.create(**chat(21, 12, stream=True)):
        pass
    # The text has 18 bytes, and 28 bytes are around it.
    assert used(limiter, POLICY, server)["tokens"] == -(-46 // 4) + 100


def test_anthropic_settles_exactly(limiter: Limiter, server: ModelServer) -> None:
    client = anthropic_client(limiter, server, **anthropic_preset())
    assert client.messages.create(**chat(321, 12)).usage.output_tokens == 12
    assert used(limiter, SPLIT, server) == {"requests": 1, "input-tokens": 321, "output-tokens": 12}
    with client.messages.stream(**chat(33, 40)) as stream:
        assert stream.get_final_text() == "word " * 40
    assert used(limiter, SPLIT, server) == {"requests": 2, "input-tokens": 354, "output-tokens": 52}


@pytest.mark.parametrize("client_of", [openai_client, anthropic_client])
def test_a_refusal_is_the_error_of_the_client(
    client_of: Callable[..., Any], limiter: Limiter, server: ModelServer
) -> None:
    mine: Any = openai if client_of is openai_client else anthropic
    preset = (openai_preset if mine is openai else anthropic_preset)(units=("tokens",))
    client = client_of(limiter, server, "1 requests/minute; 5000 tokens/minute", timeout=0, **preset)
    ask = client.chat.completions.create if mine is openai else client.messages.create
    ask(**chat(10, 5))
    with pytest.raises(mine.RateLimitError) as refused:
        ask(**chat(10, 5))
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert int(refused.value.response.headers["retry-after"]) > 0
    assert len(server.calls()) == 1


@pytest.mark.parametrize("client_of", [openai_client, anthropic_client])
def test_a_request_that_never_fits_is_an_error_that_says_so(
    client_of: Callable[..., Any], limiter: Limiter, server: ModelServer
) -> None:
    mine: Any = openai if client_of is openai_client else anthropic
    preset = (openai_preset if mine is openai else anthropic_preset)(units=("tokens",))
    client = client_of(limiter, server, POLICY, **preset)
    ask = client.chat.completions.create if mine is openai else client.messages.create
    with pytest.raises(mine.APIStatusError, match="at most") as refused:
        ask(**chat(1, 1, model="a" * 10, **{"max_tokens": 100_000} if mine is openai else {}), **_huge(mine))
    assert refused.value.status_code == 413
    assert "raise the limit" in str(refused.value)
    assert server.calls() == []


def _huge(mine: Any) -> dict[str, Any]:
    """Makes a request larger than a minute's limit. Anthropic's bound alone is not charged."""
    return {} if mine is openai else {"system": "a" * 400_000}


@pytest.mark.parametrize("client_of", [openai_client, anthropic_client])
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 529])
def test_a_call_that_failed_keeps_its_request_and_no_tokens(
    client_of: Callable[..., Any], status: int, limiter: Limiter, server: ModelServer
) -> None:
    mine: Any = openai if client_of is openai_client else anthropic
    preset = openai_preset if mine is openai else anthropic_preset
    client = client_of(limiter, server, POLICY, **preset(units=("tokens",))).with_options(max_retries=0)
    ask = client.chat.completions.create if mine is openai else client.messages.create
    with pytest.raises(mine.APIStatusError) as failed:
        ask(**chat(10, 5, text=f" refuse {status} 1 times"))
    assert failed.value.status_code == status
    assert used(limiter, POLICY, server) == {"requests": 1, "tokens": 0}


def test_a_retry_after_a_failure_is_charged_once(limiter: Limiter, server: ModelServer) -> None:
    client = openai_client(limiter, server, **openai_preset(output="used"))
    client.chat.completions.create(**chat(321, 23, text=" refuse 500 1 times"))
    assert used(limiter, POLICY, server) == {"requests": 2, "tokens": 344}


def test_a_preset_charges_what_the_policy_counts(limiter: Limiter, server: ModelServer) -> None:
    anthropic_client(limiter, server, POLICY, **anthropic_preset()).messages.create(**chat(321, 12))
    assert used(limiter, POLICY, server) == {"requests": 1, "tokens": 333}
    openai_client(limiter, server, SPLIT, **openai_preset(output="used")).chat.completions.create(**chat(30, 4))
    assert used(limiter, SPLIT, server) == {"requests": 1, "input-tokens": 30, "output-tokens": 4}
    requests = "500 requests/minute"
    anthropic_client(limiter, server, requests, **anthropic_preset()).messages.create(**chat(321, 12))
    assert used(limiter, requests, server) == {"requests": 1}
    by_model = anthropic_client(limiter, server, lambda request: POLICY, **anthropic_preset())
    by_model.messages.create(**chat(7, 5))
    assert used(limiter, POLICY, server) == {"requests": 2, "tokens": 345}
    learned = anthropic_client(limiter, server, None, **anthropic_preset())
    assert learned.messages.create(**chat(7, 5)).usage.output_tokens == 5


@pytest.mark.parametrize(
    ("policy", "options"), [(SPLIT, {"units": ("tokens",)}), ("10 images/minute; 90000 tokens/minute", {})]
)
def test_a_policy_that_counts_something_else_is_an_error_where_it_is_written(policy: str, options: Any) -> None:
    with pytest.raises(CostError, match=policy.split()[1].split("/")[0] if not options else "tokens"):
        PacedTransport(Limiter(), policy, **anthropic_preset(**options))


def test_a_batch_leaves_room_for_others(server: ModelServer) -> None:
    policy = Policy("500 requests/minute; 300 tokens/minute", priorities={"batch": "50%"})
    limiter = Limiter(policies={"llm": policy}, clock=ManualClock())
    batch = openai_client(limiter, server, "llm", timeout=0, **openai_preset(output="used", priority="batch"))
    others = openai_client(limiter, server, "llm", timeout=0, **openai_preset(output="used"))
    batch.chat.completions.create(**chat(100, 60))
    with pytest.raises(openai.RateLimitError):
        batch.chat.completions.create(**chat(1, 1, max_tokens=60))
    others.chat.completions.create(**chat(1, 1, max_tokens=60))
    with pytest.raises(openai.RateLimitError):
        others.chat.completions.create(**chat(1, 1, max_tokens=200))
    assert len(server.calls()) == 2


def test_of_twenty_streams_with_cancellations_none_is_lost(server: ModelServer) -> None:
    asyncio.run(twenty_messages(server))


async def twenty_messages(server: ModelServer) -> None:
    limiter = AsyncLimiter(clock=ManualClock())
    policy = f"{SPLIT}; concurrency 20"
    transport = AsyncPacedTransport(limiter, policy, **anthropic_preset())
    client = anthropic.AsyncAnthropic(
        api_key="k", base_url=server.url, http_client=httpx2.AsyncClient(transport=transport)
    )

    async def read(index: int, begun: asyncio.Event) -> str:
        text = ""
        async with client.messages.stream(**chat(100 + index, 10 + index, wait=True)) as stream:
            async for part in stream.text_stream:
                text += part
                begun.set()
        return text

    begun = [asyncio.Event() for _ in range(20)]
    tasks = [asyncio.create_task(read(index, event)) for index, event in enumerate(begun)]
    await asyncio.gather(*(event.wait() for event in begun))
    # All are under way. A third is cancelled before the others go on.
    cancelled = [index for index in range(20) if index % 3 == 0]
    for index in cancelled:
        tasks[index].cancel()
    await asyncio.gather(*(tasks[index] for index in cancelled), return_exceptions=True)
    await asyncio.to_thread(server.ask, "/-/go")
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for index, text in enumerate(done):
        assert isinstance(text, asyncio.CancelledError) if index in cancelled else text == "word " * (10 + index)
    await client.close()
    names = {"requests": 0, "input-tokens": 0, "output-tokens": 0, "cost": 0}
    decision = await limiter.peek(asked(policy), f"out:{server.url}", names)
    left = {state.unit or "held": state.limit - state.remaining for state in decision.limits}
    # Every stream has reported its input. Those that were cancelled stay charged for the longest answer.
    assert left == {
        "requests": 20,
        "input-tokens": sum(100 + index for index in range(20)),
        "output-tokens": sum(100 if index in cancelled else 10 + index for index in range(20)),
        "held": 0,
    }


def test_of_twenty_streams_of_openai_none_is_lost(server: ModelServer) -> None:
    asyncio.run(twenty_chats(server))


async def twenty_chats(server: ModelServer) -> None:
    limiter = AsyncLimiter(clock=ManualClock())
    transport = AsyncPacedTransport(limiter, POLICY, **openai_preset(output="used"))
    http_client = httpx2.AsyncClient(transport=transport)
    client = openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http_client)
    options = {"stream": True, "stream_options": {"include_usage": True}, "wait": True}

    async def read(index: int, begun: asyncio.Event) -> int:
        words = 0
        async for chunk in await client.chat.completions.create(**chat(100 + index, 10 + index, **options)):
            words += len(chunk.choices)
            begun.set()
        return words

    begun = [asyncio.Event() for _ in range(20)]
    tasks = [asyncio.create_task(read(index, event)) for index, event in enumerate(begun)]
    await asyncio.gather(*(event.wait() for event in begun))
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks[::2], return_exceptions=True)
    await asyncio.to_thread(server.ask, "/-/go")
    assert await asyncio.gather(*tasks[1::2]) == [11 + index for index in range(1, 20, 2)]
    await client.close()
    decision = await limiter.peek(asked(POLICY), f"out:{server.url}", {"requests": 0, "tokens": 0})
    # The text has 19 bytes and " wait", and 28 bytes are around it.
    charged = -(-(19 + 5 + 28) // 4) + 100
    settled = sum(110 + 2 * index for index in range(1, 20, 2))
    assert [state.limit - state.remaining for state in decision.limits] == [20, 10 * charged + settled]
