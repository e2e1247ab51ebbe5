"""The applications that `http_round.py` measures: `create(framework, limiter, store)`, one worker each."""

import os
from typing import Any

from fastapi import FastAPI, Request, Response

# Two limits, so high that no request is denied, as fixed windows, which are the peers' default.
TIDEGATE = "fixed-window 1000000000/hour; fixed-window 1000000/second"
PEERS = "1000000000/hour; 1000000/second"

# The limits that `web_cost.py` measures: one policy, two of them, and one with functions of the request.
LIMITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tidegate": (TIDEGATE, {}),
    "two policies": ([TIDEGATE, "fixed-window 1000000000/day"], {}),
    "functions": (TIDEGATE, {"key": lambda _: "someone", "cost": lambda _: 1}),
}


def flask_app(which: str, store: str) -> Any:
    from flask import Flask

    app = Flask("bench")

    def limit(view: Any) -> Any:
        return view

    if which in LIMITS:
        from tidegate.flask import Tidegate

        policy, options = LIMITS[which]
        limit = Tidegate(app, store=store).limit(policy, **options)
    elif which == "flask-limiter":
        from flask_limiter import Limiter
        from flask_limiter.util import get_remote_address

        limit = Limiter(get_remote_address, app=app, storage_uri=store, headers_enabled=True).limit(PEERS)

    @app.get("/")
    @limit
    def hello() -> str:
        return "hello"

    return app


def fastapi_app(which: str, store: str) -> Any:
    app = FastAPI()

    if which == "slowapi":
        from slowapi import Limiter
        from slowapi.util import get_remote_address

        limiter = Limiter(key_func=get_remote_address, storage_uri=store, headers_enabled=True)
        app.state.limiter = limiter

        @app.get("/")
        @limiter.limit(PEERS)
        async def limited(request: Request, response: Response) -> dict[str, str]:
            return {"hello": "world"}

        return app

    def limit(view: Any) -> Any:
        return view

    if which in LIMITS:
        from tidegate.fastapi import Tidegate

        policy, options = LIMITS[which]
        limit = Tidegate(app, store=store).limit(policy, **options)

    @app.get("/")
    @limit
    async def hello() -> dict[str, str]:
        return {"hello": "world"}

    return app


def create() -> Any:
    make = {"flask": flask_app, "fastapi": fastapi_app}[os.environ["BENCH_FRAMEWORK"]]
    return make(os.environ["BENCH_LIMITER"], os.environ["BENCH_STORE"])
