"""`tunewright bench record`: the operator calls of a program, as shapes for a benchmark."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from tunewright.bench.recording import as_toml
from tunewright.bench.recording import record as recorded
from tunewright.cli import output
from tunewright.report import formatting


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("calls.toml"), show_default=True,
              help="Where to write what was called.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def record(command: tuple[str, ...], out: Path) -> None:
    """Run COMMAND, and write which operators and tuned kernels it calls.

    With which sizes, and how often.

    \b
      tunewright bench record -- python app.py
      tunewright bench --shapes calls.toml

    Every Python process that COMMAND starts is recorded. The exit status is that of COMMAND.
    """
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}; write: tunewright bench record -- python app.py")
    suite, status = recorded(command)
    out.write_text(as_toml(suite))
    calls = sum(call.count for call in suite.call)
    launches = sum(kernel["count"] for kernel in suite.kernel)
    summary = f"{formatting.counted(calls, 'call')} of operators ({len(suite.call)} kinds), "
    summary += f"{formatting.counted(launches, 'call')} of tuned kernels ({len(suite.kernel)} kinds): {out}"
    click.echo(output.escape_control(summary), err=True)
    if status:
        sys.exit(status if status > 0 else 128 - status)
