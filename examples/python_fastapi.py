"""FastAPI: limits on endpoints, routers and websockets, a default for the rest, and metrics.

Needs: pip install "tidegate[fastapi,prometheus]" uvicorn. Runs with:

    TIDEGATE_STORE=redis://127.0.0.1:6379/0 uvicorn --app-dir examples python_fastapi:app --workers 4
"""

import os
from collections.abc import AsyncIterator

from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from tidegate.fastapi import RateLimit, Tidegate, client_ip, header
from tidegate.prometheus import TidegateCollector

app = FastAPI()
tg = Tidegate(
    app,
    store=os.environ.get("TIDEGATE_STORE", "memory://"),
    policies={"login": "20/minute; 5/3s", "tokens": "1000/hour", "chat": "concurrency 2"},
    default="100/minute",
    # Trusts X-Forwarded-For only when it comes from the proxy on this machine.
    key=client_ip(trusted_proxies=["loopback"]),
)


# For Prometheus. ops/ has a dashboard and alerts. Several workers need PROMETHEUS_MULTIPROC_DIR: docs/metrics.md.
REGISTRY.register(TidegateCollector(tg.limiter))


@app.get("/metrics")
@tg.exempt
def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@app.post("/login")
@tg.limit("login")
async def login() -> str:
    return "welcome"


@app.get("/")
def index() -> str:
    return "under the default"


@app.get("/health")
@tg.exempt
async def health() -> str:
    return "fine"


def used(request: Request, response: Response) -> int:
    """Returns the actual cost, which is known when the response is complete."""
    return int(request.scope.get("state", {}).get("tokens", 1))


@app.get("/complete")
# By API key, and by address, because a client may make up another key for each request. The actual cost corrects the
# charge of the policy that has a cost.
@tg.limit([("tokens", header("X-API-Key"), 50), "60/minute"], settle=used)
async def complete(request: Request) -> StreamingResponse:
    async def words() -> AsyncIterator[str]:
        for count, word in enumerate(["one", "two", "three"], start=1):
            request.state.tokens = count
            yield f"{word}\n"

    return StreamingResponse(words())


# One limit for all routes of the router.
api = APIRouter(prefix="/api", dependencies=[Depends(RateLimit([("10/second", header("X-API-Key")), "50/second"]))])


@api.get("/things")
async def things() -> list[str]:
    return ["a", "b"]


app.include_router(api)


@app.websocket("/chat")
@tg.limit("chat")
async def chat(socket: WebSocket) -> None:
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(f"you said: {text}")
