"""The application of `test_web_fastapi_servers.py`, with everything that may be around routes."""

from __future__ import annotations

from typing import Any

from fastapi import BackgroundTasks, Depends, FastAPI, Request, WebSocket
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse

from tidegate import RateLimited
from tidegate.fastapi import RateLimit, Tidegate
from web_served import options

NOTATION = "fixed-window 5/hour"


def create() -> FastAPI:
    app = FastAPI()
    tg = Tidegate(app, default=NOTATION, application="100000/hour", **options())

    @app.get("/decorated")
    @tg.limit(NOTATION)
    async def decorated(background: BackgroundTasks) -> str:
        background.add_task(print, "task")
        return "ok"

    @app.get("/depends", dependencies=[Depends(RateLimit(NOTATION))])
    def depends() -> str:
        return "ok"

    @app.get("/default")
    async def default() -> str:
        return "ok"

    @app.websocket("/ws")
    @tg.limit(NOTATION)
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(f"{socket.state.rate_limit.decisions[0].remaining} left")
        await socket.close()

    async def observe(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Observed"] = str(response.status_code)
        return response

    inner = FastAPI()
    inner.get("/own")(tg.limit(NOTATION)(own))
    inner.add_exception_handler(RateLimited, lambda request, error: JSONResponse({"inner": True}, 429))
    app.mount("/inner", inner)
    app.add_middleware(BaseHTTPMiddleware, dispatch=observe)
    app.add_middleware(GZipMiddleware, minimum_size=1)
    app.add_middleware(CORSMiddleware, allow_origins=["http://page.example"], expose_headers=["Retry-After"])
    return app


async def own() -> str:
    return "ok"
