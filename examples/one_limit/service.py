"""The Flask half of a login that has one limit over two services.

pip install "tidegate[flask]"
python service.py
"""

import os
from pathlib import Path
from wsgiref.simple_server import make_server

from flask import Flask

from tidegate import Limiter
from tidegate.flask import Tidegate

app = Flask(__name__)
tg = Tidegate(app, limiter=Limiter.from_file(Path(__file__).with_name("tidegate.yaml")))


@app.post("/login")
@tg.limit("login")
def login() -> str:
    return "welcome to Flask\n"


if __name__ == "__main__":
    with make_server("127.0.0.1", int(os.environ.get("PORT", "5000")), app) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
