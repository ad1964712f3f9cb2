"""Rendering: the command line's help and the settings as pages."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import click

from tunewright.cli.main import command
from tunewright.settings import FEATURES, Mode, Settings

WIDTH = 88
WIDE = ' class="wide"'


def commands() -> str:
    """A page with the help of every command, as the terminal shows it."""
    head = (
        "# Commands\n\nWhat `tunewright COMMAND --help` says. `--json` gives one JSON value where it is offered; "
        "tables are for people.\n"
    )
    return head + "".join(_helped(command, None, "tunewright"))


def _helped(one: click.Command, parent: click.Context | None, name: str) -> list[str]:
    context = click.Context(one, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    depth = min(2 + context.command_path.count(" "), 3)
    said = f"\n{'#' * max(depth, 2)} {context.command_path}\n\n```text\n{one.get_help(context)}\n```\n"
    inner = [(each, one.get_command(context, each)) for each in one.list_commands(context)] if _group(one) else []
    return [said, *(text for each, inside in inner if inside for text in _helped(inside, context, each))]


def _group(one: click.Command) -> bool:
    return isinstance(one, click.Group)


def settings() -> str:
    """A page with every setting: its name in each place, what it is without one, and what the source says of it."""
    remarks = dict(re.findall(r"^    (\w+): [^#\n]*# (.*)$", inspect.getsource(Settings), re.MULTILINE))
    rows = [
        f"| `{name}` | `TUNEWRIGHT_{name.upper()}` | {_shown(value)} | {remarks.get(name, '')} |"
        for name, value in zip(Settings.__struct_fields__, Settings().values(), strict=True)
    ]
    modes = dict(re.findall(r'= "(\w+)"  # (.*)$', inspect.getsource(Mode), re.MULTILINE))
    features = [f"| `{one.name}` | {one.says} | {one.since} | {'yes' if one.on else 'no'} |" for one in FEATURES]
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


def _shown(value: object) -> str:
    return f"`{value}`" if value not in ("", {}) else ""


def gallery(folder: Path, pictures: Path) -> str:
    """A card for each example: its picture, what it says of itself, and its source; small cards first."""
    cards = [_card(path, pictures / f"{path.stem}.svg") for path in sorted(folder.glob("[0-9]*.py"))]
    return "\n".join(['<div class="cards" markdown>', *sorted(cards, key=lambda card: WIDE in card), "</div>", ""])


def _card(path: Path, picture: Path) -> str:
    """One card; a picture of two panels takes the place of two."""
    said = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    title, _, more = said.partition(": ")
    rest = more[:1].upper() + more[1:]
    _, _, wide, high = map(float, re.findall(r'viewBox="([^"]+)"', picture.read_text())[0].split())
    return (
        f"<div{WIDE if wide > 2.3 * high else ''} markdown>\n\n### {title}\n\n![{title}](gallery/{picture.name})\n\n"
        f"{rest} [`{path.name}`](../gallery/{path.name})\n\n</div>"
    )


def benchmarks(folder: Path) -> str:
    """A row for each benchmark that can be run: its file, and what it says of itself."""
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    runnable = {name: text for name, text in texts.items() if "__main__" in text and "parser(" in text}
    said = {name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for name, text in runnable.items()}
    return "\n".join(["| benchmark | |", "|---|---|", *(f"| `{name}` | {words} |" for name, words in said.items())])
