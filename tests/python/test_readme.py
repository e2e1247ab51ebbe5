"""The Python blocks of the READMEs and of the pages run, each pasted alone, and every other block is in some run.
snippets.py has the rules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from client import Servers
from paths import ROOT
from snippets import COMMANDS, PROSE, READ, RUN, Block, all_blocks, blocks_in, blocks_of, is_followed, pages
from snippets_page import namespace_of, python_blocks
from tidegate import Limiter
from web import call_asgi, call_wsgi


def is_about_django(path: Path) -> bool:
    return any(block.title == "settings.py" for block in blocks_of(path))


BLOCKS = all_blocks()
PYTHON = [block for path in pages() if not is_about_django(path) for block in python_blocks(path)]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_block_is_in_a_run() -> None:
    known = RUN | READ | COMMANDS | PROSE
    assert [f"{block}: {block.language or 'no language'}" for block in BLOCKS if block.language not in known] == []
    languages = [block.language for block in BLOCKS]
    for language, least in (("python", 60), ("js", 40), ("rust", 25)):
        assert languages.count(language) >= least, f"{language}: {languages.count(language)} blocks"
    print({language: languages.count(language) for language in sorted(set(languages))})


def test_every_fence_is_found() -> None:
    """No run would include a fence that the pattern does not match."""
    for path in pages():
        fences = re.findall(r"^[ ]*```", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(path)), named(path)


def test_prose_is_no_code() -> None:
    code = re.compile(r"^(import |from \S+ import|const |let |use \w+::|def |async def |fn )", re.MULTILINE)
    hidden = [str(block) for block in BLOCKS if block.language in PROSE and code.search(block.code)]
    assert hidden == []


def test_indented_blocks_are_found() -> None:
    block = '```python title="a.py"\n    if True:\n        x = 1\n    ```\n'
    text = f"- a list\n\n    {block}"
    (found,) = blocks_in(text, "page.md")
    assert (found.language, found.title, found.line) == ("python", "a.py", 3)
    assert found.code == "if True:\n    x = 1\n"


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_block_runs_alone(block: Block, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    policy_files(ROOT / block.page, tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace_of([block], redis_url)


def test_no_block_uses_what_it_does_not_define(tmp_path: Path) -> None:
    """Checks also the functions that nothing calls."""
    for number, block in enumerate(PYTHON):
        (tmp_path / f"block{number}.py").write_text(f"# {block}\n{block.code}", encoding="utf-8")
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    ended = subprocess.run(lint, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("path", [path for path in pages() if is_about_django(path)], ids=named)
def test_a_page_about_django_runs(path: Path, redis_url: str) -> None:
    django_page(path, redis_url)


def policy_files(path: Path, folder: Path) -> None:
    """Writes the titled policy files of a page, for its other blocks."""
    for block in blocks_of(path):
        if block.language in READ and block.title:
            (folder / block.title).write_text(block.code, encoding="utf-8")


def django_page(path: Path, redis_url: str, *requests: str) -> dict[str, list[int]]:
    """Runs a page in a separate process. Returns the statuses of the requests by their paths."""
    program = [
        sys.executable,
        "-W",
        "error",
        ROOT / "tests" / "python" / "snippets_page.py",
        path,
        redis_url,
        *requests,
    ]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert lines[-1][:2] == ["end", "of"], ended.stdout
    return {target: [int(status) for status in statuses] for target, *statuses in lines[:-1]}


def application(page: str, part: str, redis_url: str) -> dict[str, Any]:
    """Runs the block of the page that has this text. Returns its names."""
    (block,) = [block for block in python_blocks(ROOT / "docs" / page) if part in block.code]
    return namespace_of([block], redis_url)


def test_the_application_of_the_page_about_flask(redis_url: str) -> None:
    app = application("frameworks/flask.md", "paid", redis_url)["app"]
    assert call_wsgi(app, "POST", "/login").body == b'{"left":4}\n'
    answers = [call_wsgi(app, "POST", "/login") for _ in range(21)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert b"wait" in refused.body and refused["Retry-After"]
    for plan, limit in (("free", "100"), ("paid", "5000")):
        signed = app.session_interface.get_signing_serializer(app).dumps({"plan": plan, "user": "alice"})
        seen = call_wsgi(app, path="/report", HTTP_COOKIE=f"session={signed}")
        assert (seen.status, seen.items("RateLimit-Policy")[plan]["q"]) == (200, int(limit))


def test_the_applications_of_the_page_about_fastapi(redis_url: str) -> None:
    app = application("frameworks/fastapi.md", "slow_down", redis_url)["app"]
    assert call_asgi(app, "POST", "/login").body == b'{"left":4}'
    assert call_asgi(app, path="/search").body == b'{"left":9}'
    answers = [call_asgi(app, "POST", "/login") for _ in range(21)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert b"wait" in refused.body
    app = application("frameworks/fastapi.md", "allow_origins", redis_url)["app"]
    answers = [call_asgi(app, path="/nowhere", headers={"Origin": "https://shop.example"}) for _ in range(101)]
    assert answers[-1]["Access-Control-Allow-Origin"] == "https://shop.example"
    app = application("frameworks/fastapi.md", "verified_user", redis_url)["app"]
    assert call_asgi(app, path="/me", headers={"X-User": "alice"}).status == 200


def test_the_application_of_the_page_about_tokens(redis_url: str) -> None:
    page = application("guides/concurrency.md", "/complete", redis_url)
    assert call_wsgi(page["app"], "POST", "/complete").status == 200
    limiter = page["tg"].limiter
    # The settled cost is far less than the estimate of 500.
    tokens, streams = limiter.peek("llm", "203.0.113.9", {"tokens": 1}).limits
    assert tokens.remaining > 30_000 - 100
    assert streams.remaining == 4


def test_the_application_of_the_page_about_plans(redis_url: str) -> None:
    app = application("recipes/plans.md", "def report", redis_url)["app"]
    for plan, limit, fields in (("free", 100, {}), ("pro", 5000, {"HTTP_AUTHORIZATION": "Bearer of-alice"})):
        seen = call_wsgi(app, path="/report", **fields)
        assert seen.status == 200 and str(limit) in seen["RateLimit-Policy"], plan


def test_the_application_of_the_page_about_django(redis_url: str) -> None:
    page = ROOT / "docs" / "frameworks" / "django.md"
    seen = django_page(page, redis_url, "POST /login 6", "GET /health 3", "POST /pay 6", "GET /export 1")
    assert seen == {"/login": [200] * 5 + [429], "/health": [200] * 3, "/pay": [200] * 5 + [429], "/export": [200]}


def test_nothing_to_paste_needs_root() -> None:
    root = re.compile(r"file:///(run|var|srv|opt|etc)\b|mkdir[^\n]* /(run|var|srv|opt|etc)\b|\bsudo\b")
    assert [str(block) for block in BLOCKS if root.search(block.code)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in READ], ids=str)
def test_a_file_is_read(block: Block, tmp_path: Path) -> None:
    is_policy_file = re.search(r'^\s*[{\["]*(policies|limits)\b', block.code, re.MULTILINE)
    if is_policy_file or block.code.startswith("store"):
        text = block.code if is_policy_file else f"{block.code}policies: {{}}\n"
        file = tmp_path / f"policies.{block.language}"
        file.write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PWD", str(tmp_path))
            environment.setenv("TIDEGATE_STORE", "memory://")
            environment.setenv("OLD_URL", "redis://old.example")
            environment.setenv("NEW_URL", "redis://new.example")
            Limiter.from_file(file).close()
    elif block.language == "json":
        json.loads(block.code)
    elif block.language == "toml":
        # Python 3.10 has no parser of TOML, and a dependency of Cargo is one line.
        lines = block.code.removeprefix("[dependencies]\n")
        assert re.fullmatch(r'([a-z-]+ = ("[^"]+"|\{ version = "[^"]+"(, [a-z-]+ = .+)* \})\n)+', lines), block.code
    else:
        pytest.fail(f"{block}: what reads this file?")


def test_the_permissions_of_the_page_about_redis_are_enough(server: Servers, tmp_path: Path) -> None:
    (rule,) = [
        block.code.split()
        for block in blocks_of(ROOT / "docs" / "production" / "redis.md")
        if block.code.startswith("ACL SETUSER app") and "cluster" not in block.code
    ]
    server.command(*rule)
    file = tmp_path / "policies.yaml"
    limits = "{limits: sliding-log 9/minute, journal: 9, overrides: {alice: 1/minute}}"
    file.write_text(
        f"store: {server.url.replace('://', '://app:secret@')}\npolicies: {{all: {limits}}}\n", encoding="utf-8"
    )
    doctor = [str(Path(sys.executable).parent / "tidegate"), "doctor", "--policies", str(file)]
    found = subprocess.run(doctor, capture_output=True, text=True, timeout=60)
    assert "the user app may run what checks need" in found.stdout, found.stdout + found.stderr
    assert "would also need" not in found.stdout, found.stdout


def test_the_page_of_flags_is_what_help_prints() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "site" / "flags.py"), "--check"], check=True, timeout=60)


def test_the_page_of_errors_has_each_code_its_classes_and_its_sentence() -> None:
    kinds = (ROOT / "core" / "src" / "error" / "mod.rs").read_text(encoding="utf-8")
    sentences = {kind: sentence for sentence, kind in re.findall(r"^    /// (.+)\n    (\w+),$", kinds, re.MULTILINE)}
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    what_to_do = page.partition("## What to do")[2]
    table = json.loads((ROOT / "tests" / "errors.json").read_text(encoding="utf-8"))
    for row in table:
        code, kind, python, node = row["code"], row["kind"], row["python"], row["node"]
        line = f"| `{code}` | `ErrorKind::{kind}` | `{python}` | `{node}` | {sentences[kind]} |"
        assert f"\n{line}\n" in page, line
    assert page.count("`ErrorKind::") == len(table)
    advised = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", what_to_do, re.MULTILINE)
    assert set(advised) == {row["code"] for row in table}


MAKE = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# Other commands of shell blocks than `make`: installers with our package, and programs such as redis-cli.
SHELL = [
    r"pip install \"?tidegate(\[[a-z0-9,-]+\])?\"?( openai)?",
    r"npm install tidegate( [@a-z/-]+)*",
    r"cargo add tidegate( --features [a-z,]+)?",
    r"redis-cli ACL SETUSER .+",
    # The tests of the command run it.
    r"tidegate setup .+",
    r"curl -i .+",
    r"celery --app \w+ worker",
    r"python \w+\.py( [^\s;|&]+)*",
]


# The commands of other pages are followed: they run.
LISTED = [block for block in BLOCKS if block.language in COMMANDS and not is_followed(ROOT / block.page)]


@pytest.mark.parametrize("block", LISTED, ids=str)
def test_commands_exist(block: Block) -> None:
    for line in block.code.splitlines():
        command = line.split("#")[0].strip()
        if command.startswith("make "):
            assert command.split()[1] in MAKE, f"{block}: {command}"
        elif command:
            assert any(re.fullmatch(pattern, command) for pattern in SHELL), f"{block}: {command}"


def test_commands_of_a_text_exist() -> None:
    """Checks `tidegate VERB --option …` in the text of every page, except the ADRs, which are history."""
    golden = ROOT / "cli" / "tests" / "golden"
    help_of = {path.stem.removeprefix("help-"): path.read_text(encoding="utf-8") for path in golden.glob("help-*.txt")}
    found = 0
    for path in pages():
        for command in re.findall(r"`(?:\w+=\S+ )*tidegate ([^`]+)`", path.read_text(encoding="utf-8")):
            verb, *words = command.split()
            if path.parent.name == "adr" or verb.startswith(("-", "=", "VERB")):
                continue
            found += 1
            assert verb in help_of, f"{named(path)}: tidegate {command}"
            unknown = [word for word in words if word.startswith("--") and f" {word} " not in help_of[verb]]
            assert unknown == [], f"{named(path)}: tidegate {command}"
    assert found > 20, found


def test_links_of_the_readmes_lead_to_files() -> None:
    blob = "https://github.com/tidegate/tidegate/blob/main/"
    site = "https://tidegate.github.io/tidegate/"
    for path in pages()[:4]:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if link.startswith(blob):
                assert (ROOT / link.removeprefix(blob)).exists(), f"{named(path)}: {link}"
            elif link.startswith(site):
                page = ROOT / "docs" / link.removeprefix(site).rstrip("/")
                assert (page / "index.md").exists() or page.with_suffix(".md").exists(), f"{named(path)}: {link}"
            elif not link.startswith("https://"):
                # PyPI and crates.io show the other READMEs without the repository.
                assert path == ROOT / "README.md", f"{named(path)}: {link} is relative"
                assert (ROOT / link.partition("#")[0]).exists(), f"{named(path)}: {link}"


@pytest.mark.parametrize("plots", ["algorithms.py", "readme.py"])
def test_the_pictures_are_what_the_limiter_says(plots: str) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "plots" / plots, "--check"], check=True, timeout=60)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_crate_has_the_license() -> None:
    assert (ROOT / "core" / "LICENSE").read_text(encoding="utf-8") == (ROOT / "LICENSE").read_text(encoding="utf-8")
