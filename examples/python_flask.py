"""Flask: a limit on a view, one on a blueprint, a default for the rest, and the users behind an address.

Needs: pip install "tidegate[flask]". Runs with `flask --app examples/python_flask.py run`, or with gunicorn:

    TIDEGATE_STORE=redis://127.0.0.1:6379/0 gunicorn -w4 --chdir examples python_flask:app

Any process on the same Redis can list the users who tried to log in from an address, newest first:

    TIDEGATE_STORE=redis://127.0.0.1:6379/0 flask --app examples/python_flask.py users-behind 203.0.113.9
"""

import os

import click
from flask import Blueprint, Flask, request

from tidegate.flask import Tidegate, client_ip, header

app = Flask(__name__)
tg = Tidegate(
    app,
    store=os.environ.get("TIDEGATE_STORE", "memory://"),
    policies={
        "login": {"limits": ["20/minute", "5/3s"], "journal": 100},
        "api": "gcra 10/s burst 20",
        "address": "gcra 50/s burst 100",
        "exports": "concurrency 2 ttl 30s",
    },
    default="100/minute",
    # Trusts X-Forwarded-For only when it comes from the proxy on this machine.
    key=client_ip(trusted_proxies=["loopback"]),
)


@app.post("/login")
@tg.limit("login", meta=lambda request: request.form.get("user"))
def login() -> str:
    return f"welcome, {request.form.get('user', 'stranger')}\n"


@app.cli.command("users-behind")
@click.argument("address")
def users_behind(address: str) -> None:
    """Prints the users who tried to log in from an address, newest first."""
    for attempt in tg.limiter.journal("login", address):
        click.echo(f"{attempt.at:.0f} {attempt.meta} {'allowed' if attempt.allowed else 'denied'}")


@app.get("/")
def index() -> str:
    return "under the default\n"


@app.get("/health")
@tg.exempt
def health() -> str:
    return "fine\n"


@app.get("/export")
@tg.limit("exports")
def export() -> tuple[object, dict[str, str]]:
    # Held until the last line was sent, or the client has disconnected.
    return (f"line {number}\n" for number in range(1000)), {"Content-Type": "text/plain"}


api = Blueprint("api", __name__, url_prefix="/api")


@api.get("/things")
def things() -> list[str]:
    return ["a", "b"]


# One limit for the whole blueprint, by API key, which is hashed before it is stored, and by address, because a client
# may make up another key for each request.
app.register_blueprint(tg.limit([("api", header("X-API-Key")), "address"])(api))

if __name__ == "__main__":
    app.run()
