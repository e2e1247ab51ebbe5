"""Runs the Python blocks of pages. `python snippets_page.py PAGE` is a process for one page. A page about Django needs
it, because Django has one configuration for each process."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snippets import Block, blocks_of

LOCAL_SERVER = "redis://127.0.0.1:6379"


def namespace_of(blocks: Iterable[Block], redis_url: str) -> dict[str, Any]:
    """Runs blocks in one namespace. Returns the namespace."""
    # A module, so that a dotted path such as "shop.views.login" finds the functions of the page.
    page = types.ModuleType("shop.views")
    sys.modules.update({"shop": types.ModuleType("shop"), "shop.views": page})
    page.__dict__["__name__"] = "shop.views"
    server = redis_url.removesuffix("/0")
    for block in blocks:
        code = compile(block.code.replace(LOCAL_SERVER, server), str(block), "exec")
        if block.title == "settings.py":
            configure_django(block, code)
        else:
            exec(code, page.__dict__)
    return page.__dict__


def python_blocks(path: Path) -> list[Block]:
    """Returns the blocks of a page that are neither files nor programs. On a page about Django, blocks have titles."""
    blocks = [block for block in blocks_of(path) if block.language == "python"]
    if any(block.title == "settings.py" for block in blocks):
        return [block for block in blocks if block.title in ("settings.py", "views.py", "")]
    return [block for block in blocks if block.is_alone]


def configure_django(block: Block, code: types.CodeType) -> None:
    """Configures Django with the settings of a block, and with those that every project has."""
    import django
    from django.conf import settings

    said: dict[str, Any] = {}
    exec(code, said)
    assert not settings.configured, f"{block}: a page has one settings.py"
    names = {name: value for name, value in said.items() if name.isupper()}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="only for tests",
        ROOT_URLCONF="shop.views",
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        **names,
    )
    django.setup()


def main() -> None:
    """Runs a page, then the requests of the arguments: `POST /login 21` prints the statuses of 21 requests."""
    path, redis_url, *requests = sys.argv[1:]
    namespace = namespace_of(python_blocks(Path(path)), redis_url)
    if requests:
        from django.test import Client

        client = Client()
        for request in requests:
            method, target, times = request.split()
            print(target, *[client.generic(method, target).status_code for _ in range(int(times))])
    print("end of", path, "with", len(namespace), "names")


if __name__ == "__main__":
    main()
