"""The limits in the OpenAPI document of a FastAPI application."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse

from tidegate import Limiter, Policy, RateLimited
from tidegate.asgi import client_ip
from tidegate.fastapi import RateLimit, Tidegate
from web import call_asgi, plain_endpoint

PROBLEM = "application/problem+json"
REF = {"$ref": "#/components/schemas/QuotaExceededProblem"}
IETF = {"RateLimit", "RateLimit-Policy"}
OLD = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}


def get(app: FastAPI, path: str, **options: Any) -> None:
    app.get(path, **options)(plain_endpoint)


def refusal(app: Any, path: str = "/", method: str = "get") -> Any:
    return app.openapi()["paths"][path][method]["responses"].get("429")


def test_a_limited_route_has_the_fields_and_the_problem_of_its_refusal() -> None:
    app = FastAPI()
    tg = Tidegate(app)

    @app.get("/")
    @tg.limit("1/minute")
    async def endpoint() -> None: ...

    said = refusal(app)
    assert said["description"] == "Too Many Requests"
    assert said["content"] == {PROBLEM: {"schema": REF}}
    schema = app.openapi()["components"]["schemas"]["QuotaExceededProblem"]
    call_asgi(app)
    refused = call_asgi(app)
    assert refused.status == 429
    assert set(schema["required"]) == set(schema["properties"]) == set(json.loads(refused.body))
    sent = {name.lower() for name, _ in refused.headers}
    assert {name.lower() for name in said["headers"]} == sent - {"content-type", "content-length", "cache-control"}


@pytest.mark.parametrize(
    ("headers", "fields"), [("both", IETF | OLD), ("ietf", IETF), ("ietf-10", IETF), ("legacy", OLD), ("off", set())]
)
def test_the_fields_are_those_that_the_option_chooses(headers: str, fields: set[str]) -> None:
    app = FastAPI()
    Tidegate(app, default="5/minute", headers=headers)
    get(app, "/")
    assert set(refusal(app)["headers"]) == fields | {"Retry-After"}


def test_dependencies_are_listed_on_routes_routers_and_applications() -> None:
    app = FastAPI()
    Tidegate(app)
    get(app, "/free")
    get(app, "/route", dependencies=[Depends(RateLimit("5/minute"))])
    limited = APIRouter(prefix="/limited", dependencies=[Depends(RateLimit("5/minute", headers="ietf"))])
    limited.get("/items/{item}")(plain_endpoint)
    nested = APIRouter(prefix="/nested")
    nested.include_router(limited)
    app.include_router(limited)
    app.include_router(nested)
    assert refusal(app, "/free") is None
    assert refusal(app, "/route") is not None
    for path in ("/limited/items/{item}", "/nested/limited/items/{item}"):
        assert set(refusal(app, path)["headers"]) == {*IETF, "Retry-After"}
    whole = FastAPI(dependencies=[Depends(RateLimit("5/minute"))])
    Tidegate(whole)
    get(whole, "/")
    assert refusal(whole) is not None


def test_what_limits_nothing_is_not_listed() -> None:
    app = FastAPI()
    policies = {"trial": Policy("5/minute", shadow=True)}
    tg = Tidegate(app, limiter=Limiter(policies=policies), default="9/minute")
    get(app, "/default")
    get(app, "/off", dependencies=[Depends(RateLimit("5/minute", enabled=False))])
    get(app, "/trial", dependencies=[Depends(RateLimit("trial"))])
    get(app, "/chosen", dependencies=[Depends(RateLimit(lambda request: None))])

    @app.get("/exempt")
    @tg.exempt
    async def exempt() -> None: ...

    @app.get("/some")
    @app.post("/some")
    @tg.limit("5/minute", methods=["POST"])
    async def some() -> None: ...

    assert refusal(app, "/default") is not None
    assert refusal(app, "/chosen") is not None
    assert [refusal(app, path) for path in ("/off", "/trial", "/exempt", "/some")] == [None] * 4
    assert refusal(app, "/some", "post") is not None


@pytest.mark.parametrize("options", [{"enabled": False, "default": "5/minute"}, {}])
def test_a_layer_that_limits_nothing_changes_nothing(options: dict[str, Any]) -> None:
    app, plain = FastAPI(), FastAPI()
    Tidegate(app, **options)
    get(app, "/")
    get(plain, "/")
    assert app.openapi() == plain.openapi()


def test_a_limit_of_the_whole_application_is_one_of_each_route() -> None:
    app = FastAPI()
    Tidegate(app, application="5/minute")
    get(app, "/")
    assert refusal(app) is not None


def test_what_the_application_says_itself_stays() -> None:
    class QuotaExceededProblem(BaseModel):
        mine: int

    app = FastAPI()
    Tidegate(app, default="5/minute")
    get(app, "/own", responses={429: {"description": "mine"}})
    get(app, "/model", responses={400: {"model": QuotaExceededProblem}})
    get(app, "/hidden", include_in_schema=False)
    assert refusal(app, "/own") == {"description": "mine"}
    schema = refusal(app, "/model")["content"][PROBLEM]["schema"]
    assert schema["title"] == "QuotaExceededProblem" and "violated-policies" in schema["properties"]
    assert "mine" in app.openapi()["components"]["schemas"]["QuotaExceededProblem"]["properties"]


def test_an_answer_of_the_application_has_no_problem_of_ours() -> None:
    def limited(**options: Any) -> FastAPI:
        app = FastAPI()
        Tidegate(app, default="5/minute", **options)
        get(app, "/")
        return app

    async def own(request: Any, error: Any) -> JSONResponse:
        return JSONResponse({}, 429)

    handled, by_status, by_any = limited(), limited(), limited()
    handled.exception_handler(RateLimited)(own)
    by_status.exception_handler(429)(own)
    by_any.exception_handler(Exception)(own)
    for app in (handled, by_status, limited(on_denied=lambda request, decision: None)):
        assert "content" not in refusal(app)
    assert "content" in refusal(by_any)


def test_a_document_of_the_application_has_the_limits_too() -> None:
    app = FastAPI()
    Tidegate(app, default="5/minute")
    get(app, "/")

    def custom() -> Any:
        return get_openapi(title="mine", version="1", routes=app.routes)

    app.openapi = custom  # type: ignore[method-assign]
    document = json.loads(call_asgi(app, path="/openapi.json").body)
    assert document["info"]["title"] == "mine"
    assert document["paths"]["/"]["get"]["responses"]["429"]["content"] == {PROBLEM: {"schema": REF}}
    assert refusal(app) is not None


def test_mounted_applications_have_documents_of_their_own() -> None:
    app, inner, within = FastAPI(), FastAPI(), FastAPI()
    Tidegate(app, default="5/minute", key=client_ip())
    get(app, "/")
    get(inner, "/")
    get(within, "/")
    app.mount("/inner", inner)
    app.mount("/between", Starlette(middleware=[Middleware(GZipMiddleware)]))
    inner.mount("/within", within)
    for path in ("", "/inner", "/inner/within"):
        document = json.loads(call_asgi(app, path=f"{path}/openapi.json").body)
        assert "429" in document["paths"]["/"]["get"]["responses"], path


def test_a_starlette_application_has_no_document() -> None:
    app = Starlette()
    Tidegate(app, default="5/minute")
    assert call_asgi(app).status == 404
    assert not hasattr(app, "openapi")
