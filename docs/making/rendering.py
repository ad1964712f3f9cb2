"""Pages and parts of pages that are generated: commands, settings, gallery, benchmarks."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import click

from tunewright.cli.main import command
from tunewright.settings import FEATURE_FLAGS, Mode, Settings

WIDTH = 88
WIDE = ' class="wide"'


def commands() -> str:
    """Returns a page with the help of every command, as a terminal shows it."""
    head = (
        "# Commands\n\nWhat `tunewright COMMAND --help` prints. With `--json`, a command prints one JSON value; tables "
        "are for people. `tunewright completion bash`, `zsh` or `fish` prints a completion script for your shell.\n"
    )
    return head + "".join(_help_sections(command, None, "tunewright"))


def _help_sections(shown: click.Command, parent: click.Context | None, name: str) -> list[str]:
    """Returns the section of a command, then those of the commands below it."""
    context = click.Context(shown, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    depth = min(2 + context.command_path.count(" "), 3)
    section = f"\n{'#' * depth} {context.command_path}\n\n```text\n{shown.get_help(context)}\n```\n"
    names = shown.list_commands(context) if isinstance(shown, click.Group) else []
    below = {inner: shown.get_command(context, inner) for inner in names if isinstance(shown, click.Group)}
    return [section, *(text for inner, each in below.items() if each for text in _help_sections(each, context, inner))]


def settings() -> str:
    """Returns a page with every setting: its names, its default, and its comment in the source."""
    remarks = dict(re.findall(r"^    (\w+): [^#\n]*# (.*)$", inspect.getsource(Settings), re.MULTILINE))
    rows = [
        f"| `{name}` | `TUNEWRIGHT_{name.upper()}` | {_format_default(value)} | {remarks.get(name, '')} |"
        for name, value in zip(Settings.__struct_fields__, Settings().values(), strict=True)
    ]
    modes = dict(re.findall(r'= "(\w+)"  # (.*)$', inspect.getsource(Mode), re.MULTILINE))
    features = [
        f"| `{flag.name}` | {flag.description} | {flag.since} | {'yes' if flag.enabled else 'no'} |"
        for flag in FEATURE_FLAGS
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Python over environment over `tunewright.toml` over default. `tunewright settings` shows each value and "
            "where it comes from.",
            "",
            "| in Python and TOML | in the environment | default | |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Modes",
            "",
            "| mode | where nothing is decided |",
            "|---|---|",
            *(f"| `{name}` | {says} |" for name, says in modes.items()),
            "",
            "## Features",
            "",
            "| feature | | since | on |",
            "|---|---|---|---|",
            *features,
            "",
        ]
    )


def _format_default(value: object) -> str:
    return f"`{value}`" if value not in ("", {}) else ""


def gallery(folder: Path, pictures: Path) -> str:
    """Returns a card for each example: its picture, its docstring, and a link to its source; small cards first."""
    cards = [_card(path, pictures / f"{path.stem}.svg") for path in sorted(folder.glob("[0-9]*.py"))]
    return "\n".join(['<div class="cards" markdown>', *sorted(cards, key=lambda card: WIDE in card), "</div>", ""])


def _card(path: Path, picture: Path) -> str:
    """Returns one card; a picture of two panels is twice as wide."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    title, _, text = docstring.partition(": ")
    rest = text[:1].upper() + text[1:]
    _, _, wide, high = map(float, re.findall(r'viewBox="([^"]+)"', picture.read_text())[0].split())
    return (
        f"<div{WIDE if wide > 2.3 * high else ''} markdown>\n\n### {title}\n\n![{title}](gallery/{picture.name})\n\n"
        f"{rest} [`{path.name}`](../gallery/{path.name})\n\n</div>"
    )


def benchmarks(folder: Path) -> str:
    """Returns a table row for each benchmark that can be run: its file and the first line of its docstring."""
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    runnable = {name: text for name, text in texts.items() if "__main__" in text and "parser(" in text}
    lines = {name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for name, text in runnable.items()}
    return "\n".join(["| benchmark | |", "|---|---|", *(f"| `{name}` | {line} |" for name, line in lines.items())])
