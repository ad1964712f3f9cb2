"""Hooks of the book: pages that are made from what lies elsewhere, and links that leave `docs/`.

A link to a file of the project outside `docs/` leads to a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import nbformat
import notebook_page
import rendering

PROJECT = Path(__file__).resolve().parents[2]
SHOWN = "shown/"
MADE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security-policy.md": "SECURITY.md"}
"""Pages of the book that are files at the top of the project."""

FILE = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)\n", re.MULTILINE)
"""A block that is a file, whose name is shown above it."""

GALLERY, BENCHMARKS = "<!-- gallery -->", "<!-- benchmarks -->"
"""Where the examples and the benchmarks are listed."""

LANGUAGES = {".py": "python", ".c": "c", ".cl": "c", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: folders become their pages, and what has no place gets one."""
    docs = Path(config.docs_dir)
    known: set[str] = set()
    nav = _completed(config.nav, docs, known)
    homeless = sorted(path.name for path in docs.glob("*.md") if path.name not in known)
    config.nav = [*nav, {"More": homeless}] if homeless else nav
    return config


def _completed(entry: Any, docs: Path, known: set[str]) -> Any:
    """A part of the navigation with folders as their pages; `known` gathers what is in it."""
    if isinstance(entry, list):
        return [_completed(one, docs, known) for one in entry]
    if isinstance(entry, dict):
        ((title, inner),) = entry.items()
        return {title: _completed(inner, docs, known)}
    if entry.endswith("/"):
        return [f"{entry}{path.name}" for path in sorted((docs / entry).glob("*.md"))]
    known.add(entry)
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made: commands, settings, files of the project that pages lead to."""
    docs = Path(config.docs_dir)
    made = {"reference/commands.md": rendering.commands(), "reference/settings.md": rendering.settings()}
    made["howto/notebook.md"] = notebook_page.render(nbformat.read(notebook_page.NOTEBOOK, as_version=4))
    made |= {page: _moved((PROJECT / name).read_text()) for page, name in MADE.items() if (PROJECT / name).exists()}
    for page in docs.rglob("*.md"):
        here = page.relative_to(docs).parent.as_posix()
        for target in _targets(page.read_text(), here):
            made.setdefault(_place(target), _shown(PROJECT / target))
    for text in (*(made[page] for page in MADE if page in made), _gallery()):
        for target in _targets(text, "."):
            made.setdefault(_place(target), _shown(PROJECT / target))
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is made, name files, and turn links that leave `docs/` to the pages that show what they lead to."""
    markdown = markdown.replace(GALLERY, _gallery())
    markdown = markdown.replace(BENCHMARKS, rendering.benchmarks(PROJECT / "benchmarks"))
    markdown = FILE.sub(r'```\2 title="\1"\n', markdown)
    here = posixpath.dirname(page.file.src_uri)

    def turned(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups()
        place = posixpath.normpath(posixpath.join(here, target))
        if not place.startswith("../"):
            return found[0]
        shown = posixpath.relpath(_place(place.removeprefix("../")), here or ".")
        return f"{mark}[{words}]({shown}{anchor or ''})"

    # What stands in a block of code is no link.
    parts, last = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(turned, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, LINK.sub(turned, markdown[last:])])


def _gallery() -> str:
    return rendering.gallery(PROJECT / "gallery", PROJECT / "docs" / "gallery")


def _targets(text: str, here: str) -> list[str]:
    """The files of the project outside `docs/` that a page leads to."""
    places = [posixpath.normpath(posixpath.join(here, link[3])) for link in LINK.finditer(FENCE.sub("", text))]
    outside = [place.removeprefix("../") for place in places if place.startswith("../")]
    return [target for target in outside if (PROJECT / target).exists()]


def _place(target: str) -> str:
    """Where the page that shows a file or a folder is."""
    return f"{SHOWN}{target.rstrip('/').replace('/', '-').replace('.', '-')}.md"


def _shown(path: Path) -> str:
    """A page that shows a file, or what is in a folder."""
    name = path.relative_to(PROJECT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n"
    if path.is_dir():
        inside = sorted(one.name for one in path.iterdir() if not one.name.startswith((".", "__")))
        return head + "\n".join(f"- `{one}`" for one in inside) + "\n"
    return f"{head}````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


def _moved(text: str) -> str:
    """A file from the top of the project as a page of the book: its links begin one floor higher."""
    return LINK.sub(
        lambda found: f"{found[1]}[{found[2]}]({_nearer(found[3])}{found[4] or ''})",
        text,
    )


def _nearer(target: str) -> str:
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
