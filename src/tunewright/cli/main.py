"""The `tunewright` command."""

from __future__ import annotations

import logging
import sys

import click

from tunewright import __version__
from tunewright.cli import examples
from tunewright.cli.commands import COMMANDS, REMOVED_IN, RENAMED
from tunewright.cli.lazy_group import LazyGroup, MissingExtension, missing_extension
from tunewright.errors import NoDecision, NothingWorked, TunewrightError

FOUND_NOTHING, WRONG_USE, INTERRUPTED = 1, 2, 130

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=LazyGroup, entries=COMMANDS, renamed=RENAMED, removed_in=REMOVED_IN, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="tunewright")
@click.option("-v", "--verbose", is_flag=True, help="Also print what the library logs.")
def command(verbose: bool) -> None:
    """Tune compute kernels, and see what was decided and why.

    A kernel is named as FILE.py:NAME or module:NAME. Exit status: 0 success, 1 nothing found or nothing worked,
    2 wrong use, 130 interrupted (what was found is kept).
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(name)s: %(message)s")


examples.attach(command)


def main() -> None:
    """Runs the command line; prints an error of the library as one line that says what to do."""
    try:
        command(standalone_mode=False, complete_var="_TUNEWRIGHT_COMPLETE")
    except click.ClickException as error:
        error.show()
        sys.exit(WRONG_USE)
    except ModuleNotFoundError as error:
        if (extension := missing_extension(error)) is None:
            raise
        MissingExtension(extension).show()
        sys.exit(WRONG_USE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except (NoDecision, NothingWorked) as error:
        _print_error(error, FOUND_NOTHING)
    except TunewrightError as error:
        _print_error(error, WRONG_USE)


def _print_error(error: TunewrightError, status: int) -> None:
    from tunewright.cli.output import escape_control  # noqa: PLC0415 - not needed for help

    click.echo(escape_control(f"tunewright: {error}"), err=True)
    sys.exit(status)
