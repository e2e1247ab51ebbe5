"""The keys of limits in a layer, in every framework: `tests/http/layered-keys.json`, and cases of Python alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paths import ROOT
from tidegate import ConfigError, Limiter, asgi, wsgi
from tidegate.http import claim, client_ip, fixed, header, user
from web import call_asgi, call_wsgi
from web_adapter import LimitedApp
from web_adapters import Adapter

CASES = json.loads((ROOT / "tests" / "http" / "layered-keys.json").read_text())["cases"]
PEER = "203.0.113.9"


def made(kind: str, *given: Any) -> Any:
    if kind == "client_ip":
        return client_ip(trusted_proxies=given[0])
    if kind == "fixed":
        return fixed(given[0])
    if kind == "claim":
        return claim(given[0], of=lambda _: {})
    # A number of hops stands for the address behind them.
    name, *hops = given
    return header(name, otherwise=client_ip(trusted_proxies=hops[0])) if hops else header(name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_caller_without_a_key(adapter: Adapter, case: dict[str, Any]) -> None:
    limiter = Limiter(policies={"p": "100/minute"})
    options = {"key": made(*case["limit"])} if "limit" in case else {}
    if "layer" in case:
        options["layer_key"] = made(*case["layer"])
    app = adapter.make("p", limiter=limiter, **options)
    assert app.get(headers=case["headers"]).status == 200
    key = case["counted"].format(peer=PEER)
    if len(case.get("limit", ())) > 2:
        # A key from `otherwise` has no prefix.
        key = key.removeprefix("anonymous:")
    assert limiter.peek("p", key).remaining == 99, key


def test_several_policies_and_the_key_of_their_limit(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "100/minute", "q": "100/minute"})
    app = adapter.make([("p", header("X-API-Key")), "q"], key=client_ip(trusted_proxies=1), limiter=limiter)
    assert app.get(headers={"X-Forwarded-For": "198.51.100.7"}).status == 200
    assert limiter.peek("p", "anonymous:198.51.100.7").remaining == 99
    assert limiter.peek("q", "198.51.100.7").remaining == 99


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
@pytest.mark.parametrize("between", [False, True], ids=["", "other middleware between"])
def test_a_layer_in_another_reads_addresses_as_that_does(kind: str, between: bool) -> None:
    limiter = Limiter(policies={"inner": "100/minute", "outer": "100/minute"})

    class Other:
        def __init__(self, app: Any) -> None:
            self.app = app

        def __call__(self, *arguments: Any) -> Any:
            return self.app(*arguments)

    def wsgi_app(_: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    async def asgi_app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    layer: Any = asgi.TidegateMiddleware if kind == "asgi" else wsgi.TidegateMiddleware
    app: Any = layer(asgi_app if kind == "asgi" else wsgi_app, "inner", key=header("X-API-Key"), limiter=limiter)
    app = layer(Other(app) if between else app, "outer", key=client_ip(trusted_proxies=1), limiter=limiter)
    served = LimitedApp(app, call_asgi if kind == "asgi" else call_wsgi)
    assert served.get(headers={"X-Forwarded-For": "198.51.100.7"}).status == 200
    assert limiter.peek("outer", "198.51.100.7").remaining == 99
    assert limiter.peek("inner", "anonymous:198.51.100.7").remaining == 99


def test_otherwise_is_any_key(adapter: Adapter) -> None:
    limiter = Limiter(policies={"p": "100/minute"})
    by_tenant = header("X-API-Key", otherwise=lambda request: adapter.header(request, "X-Tenant"))
    app = adapter.make("p", key=by_tenant, limiter=limiter)
    assert app.get(headers={"X-Tenant": "acme"}).status == 200
    assert limiter.peek("p", "acme").remaining == 99
    # One header after the other, and at last the address that the layer reads.
    chained = header("X-API-Key", otherwise=header("X-Tenant"))
    app = adapter.make("p", key=chained, layer_key=client_ip(trusted_proxies=1), limiter=limiter)
    assert app.get(headers={"X-Forwarded-For": "198.51.100.7"}).status == 200
    assert limiter.peek("p", "anonymous:198.51.100.7").remaining == 99


def test_what_is_no_key_is_refused() -> None:
    for make in (header, claim):
        with pytest.raises(ConfigError, match=r"otherwise=fixed\('all'\)"):
            make("X-API-Key", otherwise="all")
    with pytest.raises(ConfigError, match=r"write otherwise=client_ip\(\)"):
        user(otherwise=client_ip)
