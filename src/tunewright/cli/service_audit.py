"""`tunewright service audit`: who published what, whether that record is whole, and where old entries go."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option, store_option
from tunewright.report import formatting
from tunewright.service import audit_export
from tunewright.service.audit_log import all_bodies, read_record
from tunewright.service.storage import open_primary
from tunewright.settings import Settings

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(invoke_without_command=True)
@click.option("--kernel", help="Only this kernel.")
@click.option("--most", default=50, show_default=True, help="How many, the latest.")
@store_option
@json_option
@click.pass_context
def audit(context: click.Context, kernel: str | None, most: int, store: str | None, as_json: bool) -> None:
    """List who published which decision, and what it replaced."""
    if context.invoked_subcommand is not None:
        return
    records = map(read_record, all_bodies(_open(store)))
    entries = [record for record in records if record is not None and kernel in (None, record.kernel)][-most:]
    if as_json:
        output.print_json(entries)
        return
    output.print_table(
        ("when", "kernel", "key", "token", "before", "after", "in force"),
        [
            (
                format_time(record.at),
                record.kernel,
                record.digest[:10],
                record.token,
                _format_config(record.before),
                _format_config(record.after),
                "yes" if record.stands else "no",
            )
            for record in entries
        ],
    )


@audit.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@json_option
def verify(files: tuple[Path, ...], store: str | None, as_json: bool) -> None:
    """Check that no entry was changed, removed or inserted.

    FILES are exported entries, oldest first. Exit status 1 if the chain is broken; the first broken entry is named.
    """
    end, problem = audit_export.verify(_open(store), files)
    if as_json:
        output.print_json({"whole": not problem, "entries": end.number, "digest": end.digest, "problem": problem})
    elif problem:
        output.echo(f"{problem}; the entries up to {end.number} are whole. Compare with a backup and with the logs")
    else:
        output.echo(f"{formatting.counted(end.number, 'entry', 'entries')} whole; the last is {end.digest or '-'}")
    if problem:
        sys.exit(1)


@audit.command()
@click.argument("file", type=FILE)
@click.option("--keep", default=100_000, show_default=True, help="How many entries stay in the store, the newest.")
@store_option
@json_option
def export(file: Path, keep: int, store: str | None, as_json: bool) -> None:
    """Move old entries to the end of FILE, one JSON value per line.

    Entries leave the store only after they are on the disk. `verify FILE` checks file and store as one chain.
    """
    moved = audit_export.export(_open(store), file, keep=keep)
    if as_json:
        output.print_json({"moved": moved, "file": str(file)})
        return
    output.echo(f"{formatting.counted(moved, 'entry', 'entries')} moved to {file}")


def _open(store: str | None) -> Any:
    return open_primary(Settings.read(store=store).store_location)


def _format_config(config: dict[str, Any] | None) -> str:
    return "-" if config is None else ", ".join(f"{name}={value}" for name, value in config.items())


def format_time(at: float | None) -> str:
    """Returns a time in the zone of this machine."""
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
