"""MkDocs hooks: pages from files outside docs/, and formulas without JavaScript.

People read the same pages on the site, in an editor and on a code host, so links are relative paths in the repository.
Images and data files outside docs/ are copied. A link to any other file becomes its text and the path as code.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"build_notes.md": "BUILD_NOTES.md", "changes.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
COPIED = {".png", ".gif", ".csv", ".txt", ".json"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages, notebooks, images and data files from outside docs/."""
    for uri, source in PAGES.items():
        files.append(File.generated(config, uri, content=from_root((ROOT / source).read_text(encoding="utf-8"))))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=of_notebook(notebook)))
    sources = [file.content_string for file in files.documentation_pages()]
    for path in sorted({path for text in sources for path in copied(text)}):
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links that leave docs/ to the copies. Links to files that are not copied become text."""
    depth = page.file.src_uri.count("/")

    def replaced(found: re.Match[str]) -> str:
        bang, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target.startswith("../" * (depth + 1)) or "://" in target:
            return found[0]
        path = target.removeprefix("../" * (depth + 1))
        known = {source: uri for uri, source in PAGES.items()}
        if path in known:
            return f"{bang}[{words}]({'../' * depth}{known[path]}{anchor})"
        if path.startswith("notebooks/") and path.endswith(".ipynb"):
            return f"{bang}[{words}]({'../' * depth}{path.removesuffix('.ipynb')}.md)"
        if path.startswith("docs/"):
            return f"{bang}[{words}]({'../' * depth}{path.removeprefix('docs/')}{anchor})"
        if pathlib.PurePath(path).suffix in COPIED:
            return f"{bang}[{words}]({'../' * depth}files/{path})"
        return f"{words} (`{path}`)" if path not in words else words

    return LINK.sub(replaced, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Converts formulas to MathML, which browsers render without a script."""

    def formula(found: re.Match[str]) -> str:
        text, display = html.unescape(found[2]), "block" if found[1] == "div" else "inline"
        return convert(text.strip()[2:-2].replace(r"\,", r"\;"), display=display)

    return re.sub(r'<(div|span) class="arithmatex">(.*?)</\1>', formula, content, flags=re.DOTALL)


def copied(text: str) -> list[str]:
    """Returns the paths of the files outside docs/ that a page links to and that the site copies."""
    paths = [target.lstrip("./") for _, _, target, _ in LINK.findall(text) if target.startswith("../")]
    return [path for path in paths if pathlib.PurePath(path).suffix in COPIED and not path.startswith("docs/")]


def from_root(text: str) -> str:
    """Returns a page of the repository's root with its links rewritten for docs/."""

    def moved(found: re.Match[str]) -> str:
        if "://" in found[3]:
            return found[0]
        target = found[3].removeprefix("docs/") if found[3].startswith("docs/") else f"../{found[3]}"
        return f"{found[1]}[{found[2]}]({target}{found[4] or ''})"

    return LINK.sub(moved, text)


def of_notebook(path: pathlib.Path) -> str:
    """Returns a notebook as a Markdown page with its text, code and outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [shown(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts).replace(".ipynb)", ".md)") + "\n"


def shown(output: dict[str, Any]) -> str:
    """Returns one output of a cell as Markdown or HTML, empty if it has neither image nor text."""
    data = output.get("data", {})
    for kind in ("image/png", "image/gif"):
        if kind in data:
            return f'<img alt="output" src="data:{kind};base64,{"".join(data[kind]).strip()}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text else ""
