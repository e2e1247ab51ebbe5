"""Hooks of mkdocs.

The site has files that are not in `docs`: the documents of the repository's root, the API of Node from TypeDoc, and
the command for the playground. A link to any other file of the repository leads to GitHub, and fails the build if the
file does not exist.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

log = get_plugin_logger("links")
ROOT = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com/tidegate/tidegate/blob/main/"
DOCUMENTS = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
# The command for the playground, which scripts/docs.sh compiles, and the script that unpacks it.
COMMAND = ROOT / ".cache" / "tidegate.wasm.zst"
UNPACKER = ROOT / ".cache" / "typedoc" / "node_modules" / "fzstd" / "esm" / "index.mjs"
# TypeDoc writes the API of Node into this folder (scripts/docs.sh starts it). Its place in the site follows.
NODE_API = ROOT / ".cache" / "node-api"
NODE_PAGES = "reference/node"

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
NUMBERED = re.compile(r"\]\((?P<file>[^)\s#]*)#(?P<name>[\w-]+)-(?P<number>\d+)\)")
# GitHub shows no tabs. So a page has bold names between two comments, and these read well there, too.
TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->\n", re.DOTALL | re.MULTILINE)
# The alerts of GitHub are the admonitions of this site.
ALERT = re.compile(r"^> \[!(NOTE|TIP|WARNING)\]\n((?:>.*\n)+)", re.MULTILINE)
PICTURE = re.compile(r'<p>(<img [^>]*src="[^"]*\.svg"[^>]*>)</p>')
TAB = re.compile(r"^\*\*([^*\n]+)\*\*\n", re.MULTILINE)
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Adds the files from elsewhere."""
    for name in DOCUMENTS:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted(NODE_API.rglob("*.md")):
        name = f"{NODE_PAGES}/{path.relative_to(NODE_API).as_posix()}"
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    for name, path in (("tidegate.wasm.zst", COMMAND), ("fzstd.mjs", UNPACKER)):
        files.append(File.generated(config, f"javascripts/{name}", abs_src_path=str(path)))
    return files


def _heading_link(link: re.Match[str], page: str) -> str:
    """TypeDoc numbers equal headings with a hyphen, this site with an underscore. TypeDoc's anchors keep the hyphen."""
    text = (NODE_API / (link["file"] or f"{page}.md")).read_text(encoding="utf-8")
    mark = "-" if f'id="{link["name"]}-{link["number"]}"' in text else "_"
    return f"]({link['file']}#{link['name']}{mark}{link['number']})"


def _tabs(found: re.Match[str]) -> str:
    """Turns the tabs of a page into blocks of pymdownx."""
    _, *parts = TAB.split(found[1])
    tabs = zip(parts[::2], parts[1::2], strict=True)
    return "".join(f"/// tab | {name}\n{text.rstrip()}\n\n///\n\n" for name, text in tabs)


def _admonition(found: re.Match[str]) -> str:
    """Turns an alert of GitHub into an admonition."""
    text = "".join(f"    {line[2:]}\n" for line in found[2].splitlines())
    return f"!!! {found[1].lower()}\n\n{text}"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites the links of a page that leave `docs`."""
    source = page.file.src_uri
    if source.startswith(f"{NODE_PAGES}/"):
        entry = "tidegate" if page.file.name == "index" else f"tidegate/{page.file.name}"
        titled = re.sub(r"\A# .*", f"# {entry}", markdown)
        return NUMBERED.sub(lambda found: _heading_link(found, page.file.name), titled)
    # The place of the page in the repository.
    at = source if source in DOCUMENTS else f"docs/{source}"

    def rewritten(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
        inside = file.removeprefix("docs/") if file.startswith("docs/") else file
        if files.get_file_from_path(inside) is not None:
            return posixpath.relpath(inside, posixpath.dirname(source) or ".") + anchor
        if not (ROOT / file).exists():
            log.warning("%s links to %s, which does not exist", at, target)
        return GITHUB + file + anchor

    markdown = ALERT.sub(_admonition, TABS.sub(_tabs, markdown))
    # Links inside code stay as they are.
    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(rewritten, part) for part in parts[::2]]
    # A pipe inside code of a table has a backslash for GitHub, which this site would show.
    parts[1::2] = [part if "```" in part else part.replace("\\|", "|") for part in parts[1::2]]
    return "".join(parts)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Docstrings announce their code with two colons, and the site shows one. Pictures get a box that scrolls, because
    a narrow screen would make them illegible."""
    if page.file.src_uri == "reference/python.md":
        html = html.replace("::</p>", ":</p>")
    return PICTURE.sub(r'<div class="picture">\1</div>', html)
