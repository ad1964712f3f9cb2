"""Output: tables and colour for people, JSON for machines, plain text when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tunewright.sharing import wire


def as_json(value: Any) -> None:
    """One JSON value on one line."""
    click.echo(wire.encode(value).decode())


def say(text: str = "", style: str = "") -> None:
    """A line of text."""
    text = harmless(text)
    if sys.stdout.isatty():
        Console().print(Text(text, style=style))
    else:
        click.echo(text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows in columns: drawn on a terminal, aligned by blanks when piped."""
    cells = [[harmless(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        drawn = Table(box=None, header_style="bold", pad_edge=False)
        for head in heads:
            drawn.add_column(head, overflow="fold")
        for row in cells:
            drawn.add_row(*map(Text, row))
        Console().print(drawn)
        return
    widths = [max(len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]
    for row in [list(heads), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def harmless(text: str) -> str:
    """A text without what a terminal obeys: names and reasons may come from a file that somebody else wrote."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def plain(value: Any) -> Any:
    """A value of ours as plain dictionaries and lists, to be put into a larger JSON answer."""
    return msgspec.json.decode(wire.encode(value))
