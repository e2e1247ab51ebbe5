"""Writes llms.txt beside the site, for programs that read documentation: an introduction, and each page of the
navigation with its first sentence. https://llmstxt.org describes the form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HEAD = """# Tidegate

> A rate limiter for Python, Node and Rust with one Rust core. A policy is a line such as `20/minute; 5/3s`; all limits
> of a call are checked in one atomic step, in memory, in a file that processes share, or on Redis and Valkey. A
> refusal says how long to wait.
"""
# Pages for people who work on Tidegate itself.
LEFT_OUT = ("Contributing",)

_first: dict[str, str] = {}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Remembers the first sentence of a page, from its first paragraph of text."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL))
    texts = (" ".join(text.split()) for text in paragraphs if re.match(r"[A-Z`*\[]", text.lstrip()))
    sentence = re.match(r".*?[.:](?= |$)", next(texts, ""))
    plain = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", sentence[0] if sentence else "")
    _first[page.file.src_uri] = plain.rstrip(":")
    return markdown


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Remembers the navigation. Its titles are known only after all pages were read."""
    config.extra["llms_nav"] = nav
    return nav


def _lines(items: Any, config: Any) -> list[str]:
    lines = []
    for item in items:
        if item.children:
            lines += _lines(item.children, config)
        elif item.is_page:
            about = _first.get(item.file.src_uri, "")
            lines.append(f"- [{item.title}]({config.site_url}{item.url}){': ' + about if about else ''}")
    return lines


def on_post_build(config: Any) -> None:
    """Writes the file."""
    parts = [HEAD]
    for item in config.extra["llms_nav"].items:
        if item.title not in LEFT_OUT:
            parts.append(f"\n## {item.title}\n\n" + "\n".join(_lines([item], config)) + "\n")
    (Path(config.site_dir) / "llms.txt").write_text("".join(parts), encoding="utf-8")
