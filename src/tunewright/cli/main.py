"""Main: the `tunewright` command."""

from __future__ import annotations

import logging
import sys

import click

from tunewright import __version__
from tunewright.cli import examples, output
from tunewright.cli.audit import audit
from tunewright.cli.bench import bench
from tunewright.cli.bundle import bundle
from tunewright.cli.campaign import campaign
from tunewright.cli.importing import import_
from tunewright.cli.look import explain, show, trials
from tunewright.cli.mlir import mlir
from tunewright.cli.quiet import quiet
from tunewright.cli.race import race
from tunewright.cli.record import record
from tunewright.cli.replay import replay
from tunewright.cli.report import report
from tunewright.cli.service import serve, service
from tunewright.cli.settings import settings
from tunewright.cli.space import space
from tunewright.cli.store import store
from tunewright.cli.torch import torch
from tunewright.cli.triton import triton
from tunewright.cli.tune import tune
from tunewright.errors import NoDecision, NothingWorked, TunewrightError

FOUND_NOTHING, WRONG_USE, INTERRUPTED = 1, 2, 130

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=_HELP)
@click.version_option(__version__, prog_name="tunewright")
@click.option("-v", "--verbose", is_flag=True, help="Also print what the library logs.")
def command(verbose: bool) -> None:
    """Tune compute kernels, and see what was decided and why.

    A kernel is named as FILE.py:NAME or module:NAME. Exit status: 0 done, 1 nothing found or nothing worked,
    2 wrong use, 130 interrupted (what was found is kept).
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(name)s: %(message)s")


for part in (
    tune,
    campaign,
    show,
    explain,
    trials,
    store,
    bundle,
    settings,
    space,
    race,
    bench,
    record,
    quiet,
    replay,
    report,
    audit,
    triton,
    mlir,
    torch,
    serve,
    service,
):
    command.add_command(part)
replay.add_command(import_)
examples.attach(command)


def main() -> None:
    """Run the command line; every error of ours is one line that says what to do."""
    try:
        command(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(WRONG_USE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except (NoDecision, NothingWorked) as error:
        click.echo(output.harmless(f"tunewright: {error}"), err=True)
        sys.exit(FOUND_NOTHING)
    except TunewrightError as error:
        click.echo(output.harmless(f"tunewright: {error}"), err=True)
        sys.exit(WRONG_USE)
