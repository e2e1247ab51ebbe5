"""The alert rules and the dashboard: checked with promtool, and against a Prometheus that scrapes the example services.

Tests that need `prometheus` and `promtool` (`apt-get install prometheus`) are skipped without them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from client import Servers
from harness.ports import free_port
from metric_list import listed

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
DASHBOARD = json.loads((OPS / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = (OPS / "tidegate.rules.yaml").read_text(encoding="utf-8")

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="prometheus is not installed"
)


def expressions() -> list[str]:
    """Returns the expressions of the dashboard, with its variables replaced as Grafana does."""
    found = []
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            text = re.sub(r"\$(job|limiter)\b", ".*", target["expr"])
            found.append(text.replace("$__rate_interval", "15s"))
    return found


@needs_prometheus
@pytest.mark.parametrize(
    "arguments", [["check", "rules", "tidegate.rules.yaml"], ["test", "rules", "tidegate.tests.yaml"]]
)
def test_promtool_accepts_the_rules(arguments: list[str]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=OPS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_and_every_name_exists() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES))
    tested = set(re.findall(r"alertname: (\w+)", (OPS / "tidegate.tests.yaml").read_text(encoding="utf-8")))
    assert alerts == tested
    names = set(listed())
    for name, one in listed().items():
        if one.kind == "histogram":
            names |= {name + part for part in ("_bucket", "_count", "_sum")}
    used = set(re.findall(r"tidegate_\w+", RULES + "".join(expressions())))
    assert used <= names, used - names
    shown = set(re.findall(r"tidegate_\w+", "".join(expressions())))
    for name, one in listed().items():
        assert any(one_shown.startswith(name) for one_shown in shown), f"{name} ({one.kind}) is on no panel"


def fetched(url: str, headers: dict[str, str] | None = None, method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as refused:
        return str(refused.read().decode())


def wait_until_served(url: str, program: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert program.poll() is None, f"{program.args!r} has ended with {program.returncode}"
        try:
            fetched(url)
            return
        except OSError:
            assert time.monotonic() < deadline, url
            time.sleep(0.1)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Runs a Prometheus that scrapes both example services every second, while clients call them."""
    folder = tmp_path_factory.mktemp("prometheus")
    python, node, own = free_port(), free_port(), free_port()
    config = folder / "prometheus.yml"
    jobs = "".join(
        f"  - job_name: {name}\n    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        for name, port in (("fastapi", python), ("express", node))
    )
    rules = json.dumps([str(OPS / "tidegate.rules.yaml")])
    timing = "scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s"
    config.write_text(f"global: {{{timing}}}\nrule_files: {rules}\nscrape_configs:\n{jobs}")
    with ExitStack() as stack, Servers("single") as server:
        environment = {**os.environ, "TIDEGATE_STORE": server.url, "PORT": str(node)}

        def start(*command: str) -> subprocess.Popen[bytes]:
            program = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
            stack.callback(program.wait)
            stack.callback(program.kill)
            return program

        uvicorn = (sys.executable, "-m", "uvicorn", "--app-dir", "examples", "--log-level", "error")
        services = [
            (f"http://127.0.0.1:{python}", start(*uvicorn, "--port", str(python), "python_fastapi:app")),
            (f"http://127.0.0.1:{node}", start("node", "examples/node_express.mjs")),
        ]
        listening = f"--web.listen-address=127.0.0.1:{own}"
        storage = f"--storage.tsdb.path={folder / 'data'}"
        program = start("prometheus", f"--config.file={config}", storage, listening, "--log.level=error")
        for url, service in services:
            wait_until_served(f"{url}/health", service)
        wait_until_served(f"http://127.0.0.1:{own}/-/ready", program)
        for _ in range(12):
            for url, _program in services:
                for _ in range(4):
                    fetched(f"{url}/login", method="POST")
                    fetched(f"{url}/api/things", headers={"X-API-Key": "key"})
            time.sleep(0.5)
        yield f"http://127.0.0.1:{own}"


def queried(prometheus: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    answer = json.loads(fetched(f"{prometheus}/api/v1/query?{query}"))
    assert answer["status"] == "success", (expression, answer)
    result: list[Any] = answer["data"]["result"]
    return result


@needs_prometheus
def test_every_expression_returns_data_of_the_example_services(prometheus: str) -> None:
    for job in ("fastapi", "express"):
        assert queried(prometheus, f'tidegate_decisions_total{{job="{job}", outcome="denied"}} > 0'), job
        assert queried(prometheus, f'tidegate_store_state{{job="{job}", state="ok"}} == 1'), job
    for expression in expressions():
        assert queried(prometheus, expression), expression
    groups = json.loads(fetched(f"{prometheus}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"alert: ", RULES))
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    # An alert compares two sides, and each must return data.
    for rule in rules:
        for side in re.split(r" (?:>|<|and) ", rule["query"]):
            compared = re.sub(r"\[\d+[mh]\]", "[15s]", side).replace("offset 5m", "")
            if "tidegate_" in compared and compared.count("(") == compared.count(")"):
                assert queried(prometheus, compared.strip()), compared
