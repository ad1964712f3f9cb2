"""`tunewright mcp` and `tunewright skill`: the server for agents, and the guide that tells them how to use this."""

from __future__ import annotations

from pathlib import Path

import click

from tunewright.agents import guide
from tunewright.cli import output
from tunewright.errors import PluginError

MAX_SECONDS = 600.0


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--max-seconds", type=click.FloatRange(min=1), default=MAX_SECONDS, show_default=True,
              help="How long one tool may measure at most.")  # fmt: skip
@click.option("--store", help="Where decisions are kept (default: the settings).")
def mcp(folder: Path, max_seconds: float, store: str | None) -> None:
    """Run an MCP server for agents over standard input and output.

    Its tools describe, tune, race, explain and bundle the kernels of FOLDER. A tool runs only files of that folder;
    they run with your rights, so do not start it where you would not run the files yourself.
    """
    try:
        from tunewright.agents.server import run_server  # noqa: PLC0415 - needs `mcp`
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise PluginError(
            "the server needs the package 'mcp', which is not installed; try: pip install 'tunewright[mcp]'"
        ) from error
    run_server(folder, max_seconds, store)


@click.command()
@click.option("--path", "as_path", is_flag=True, help="Print where the file is, instead of what it says.")
def skill(as_path: bool) -> None:
    """Print the guide for agents: how to use this command line well."""
    output.echo(str(guide.GUIDE) if as_path else guide.read_guide().rstrip())
