"""`tidegate routes MODULE:APP` lists the limits of each route."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FLASK = """
from flask import Blueprint, Flask
from flask.views import MethodView
from tidegate.flask import Tidegate, header

tg = Tidegate(policies={"login": "20/minute; 5/3s"}, default="100/minute", application="1000/minute")
api = Blueprint("api", __name__)
tg.limit("50/minute")(api)

@api.get("/items")
def items(): ...

class Item(MethodView):
    def get(self): ...
    @tg.limit("5/minute", key=header("X-API-Key"))
    def post(self): ...

def create_app():
    app = Flask(__name__, static_folder=None)
    tg.init_app(app)
    app.register_blueprint(api, url_prefix="/api")
    app.add_url_rule("/", "index", lambda: "")
    app.add_url_rule("/login", "login", tg.limit("login")(lambda: ""), methods=["POST"])
    app.add_url_rule("/plan", "plan", tg.limit(by_plan)(lambda: ""))
    app.add_url_rule("/health", "health", tg.exempt(lambda: ""))
    app.add_url_rule("/item", view_func=Item.as_view("item"))
    return app

def by_plan(request): ...
"""

FASTAPI = """
from fastapi import APIRouter, Depends, FastAPI
from tidegate.asgi import TidegateMiddleware
from tidegate.fastapi import RateLimit, Tidegate

app = FastAPI(openapi_url=None)
tg = Tidegate(app, policies={"login": "20/minute"}, default="100/minute")
router = APIRouter(prefix="/api", dependencies=[Depends(RateLimit("10/second"))])

@router.get("/items/{item}")
def items(): ...

@app.post("/login")
@tg.limit("login")
def login(): ...

@app.get("/health")
@tg.exempt
def health(): ...

@app.websocket("/ws")
async def ws(): ...

app.include_router(router)
wrapped = TidegateMiddleware(app, "9/second")
"""

DJANGO = """
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import include, path
from django.views import View
from tidegate.django import exempt, limit

settings.configure(
    SECRET_KEY="s", ROOT_URLCONF=__name__, MIDDLEWARE=["tidegate.django.TidegateMiddleware"],
    TIDEGATE={"policies": {"login": "20/minute"}, "default": "100/minute", "application": "1000/minute"},
)

def index(request): ...

@limit("login")
def login(request): ...

@exempt
def health(request): ...

class Item(View):
    def get(self, request): ...
    @limit("5/minute")
    def post(self, request): ...

shop = [path("items/<int:item>", Item.as_view())]
urlpatterns = [path("", index), path("login", login), path("health", health), path("shop/", include(shop))]
application = get_wsgi_application()
"""


def listed(folder: Path, code: str, target: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "shown.py").write_text(code, encoding="utf-8")
    words = [sys.executable, "-m", "tidegate", "routes", target, *more]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def lines(ran: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert (ran.returncode, ran.stderr) == (0, "")
    return sorted(line.split(maxsplit=2) for line in ran.stdout.splitlines())


def test_the_routes_of_flask(tmp_path: Path) -> None:
    every = "1000/minute by client_ip() [application]"
    assert lines(listed(tmp_path, FLASK, "shown:create_app()")) == [
        ["GET", "/", f"100/minute by client_ip() [default], {every}"],
        ["GET", "/api/items", f"50/minute by client_ip(), {every}"],
        ["GET", "/health", "no limit"],
        ["GET", "/item", f"100/minute by client_ip() [default], {every}"],
        ["GET", "/plan", f"chosen by by_plan, {every}"],
        ["POST", "/item", f"5/minute by header('X-API-Key'), {every}"],
        ["POST", "/login", f"login (20/minute; 5/3s) by client_ip(), {every}"],
    ]


@pytest.mark.parametrize("target", ["shown", "shown:wrapped"])
def test_the_routes_of_fastapi(tmp_path: Path, target: str) -> None:
    more = ", 9/s by client_ip() [middleware]" if target == "shown:wrapped" else ""
    assert lines(listed(tmp_path, FASTAPI, target)) == [
        ["*", "/ws", f"100/minute by client_ip() [default]{more}"],
        ["GET", "/api/items/{item}", f"10/s by client_ip(){more}"],
        ["GET", "/health", more.removeprefix(", ") or "no limit"],
        ["POST", "/login", f"login (20/minute) by client_ip(){more}"],
    ]


def test_the_routes_of_django(tmp_path: Path) -> None:
    every = "1000/minute by client_ip() [application]"
    assert lines(listed(tmp_path, DJANGO, "shown:application")) == [
        ["*", "/", f"100/minute by client_ip() [default], {every}"],
        ["*", "/health", "no limit"],
        ["*", "/login", f"login (20/minute) by client_ip(), {every}"],
        ["GET", "/shop/items/<int:item>", f"100/minute by client_ip() [default], {every}"],
        ["POST", "/shop/items/<int:item>", f"5/minute by client_ip(), {every}"],
    ]


def test_json(tmp_path: Path) -> None:
    ran = listed(tmp_path, FASTAPI, "shown:app", "--json")
    found: list[dict[str, Any]] = [one for one in json.loads(ran.stdout) if one["path"] == "/login"]
    limit = {"from": "route", "policy": "login", "limits": "20/minute", "key": "client_ip()"}
    assert found == [{"method": "POST", "path": "/login", "limits": [limit]}]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("absent:app", "No module named 'absent'"),
        ("shown:absent", "no attribute 'absent'"),
        ("shown:tg", "not an application"),
    ],
)
def test_what_cannot_be_listed_is_an_error(tmp_path: Path, target: str, says: str) -> None:
    ran = listed(tmp_path, FASTAPI, target)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: ") and says in ran.stderr


def test_the_help_lists_it() -> None:
    words = [sys.executable, "-m", "tidegate", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "  routes       List the limits of each route" in shown and "explain" in shown
