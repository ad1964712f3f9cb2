"""Printing for commands: tables and color on a terminal, plain text when piped, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from tunewright.report.formatting import escape_control
from tunewright.stores import serialization

__all__ = ["echo", "escape_control", "print_json", "print_table", "to_builtins"]


def print_json(value: Any) -> None:
    """Prints one JSON value on one line."""
    click.echo(serialization.encode(value).decode())


def echo(text: str = "", style: str = "") -> None:
    """Prints a line of text, with a style if standard output is a terminal."""
    text = escape_control(text)
    if not sys.stdout.isatty():
        click.echo(text)
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.text import Text  # noqa: PLC0415

    Console().print(Text(text, style=style))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows in columns, aligned by blanks when piped."""
    cells = [[escape_control(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(heads, cells)
        return
    lines = [list(heads), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich_table(heads: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def to_builtins(value: Any) -> Any:
    """Returns a value as plain dictionaries and lists, to be part of a larger JSON answer."""
    return msgspec.json.decode(serialization.encode(value))
