"""Torch: what `torch.compile` makes of a model."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.pools.loading import find
from tunewright.report.diagnosis import Place, page, plain, told


@click.group()
def torch() -> None:
    """Models that torch.compile compiles."""


@torch.command()
@click.argument("target")
@click.option("--backend", default=None, help="Of torch.compile (default: as the model says, else inductor).")
@click.option("--calls", default=1_000, show_default=True, help="For how many calls time is reckoned.")
@click.option("--layers", is_flag=True, help="The error of each layer, even where the whole is right.")
@click.option("--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write a page instead.")
@json_option
def doctor(target: str, backend: str | None, calls: int, layers: bool, page_at: Path | None, as_json: bool) -> None:
    """Say what costs a compiled model time or digits, where, and what to change.

    TARGET is FILE.py:MAKE or module:MAKE, a function that returns a model and the arguments of one call or more, each a
    tuple: `return model, (x,)`. Symptoms are ranked by the time at stake.
    """
    from tunewright.fronts.torch.doctor import examine_made  # noqa: PLC0415 - torch is loaded where it is asked for

    file, made = _made(target)
    how = {"backend": backend} if backend else {}
    found = examine_made(made, Place(file), how, calls=calls, layers=layers)
    if page_at:
        page_at.write_text(page(found))
        output.say(f"{len(found.symptoms)} symptoms written to {page_at}")
    elif as_json:
        output.as_json(plain(found))
    else:
        for line in told(found):
            output.say(line)


def _made(target: str) -> tuple[str, Any]:
    """The file that a function stands in, and what it returns."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise click.UsageError(f"{target} names no function; write FILE.py:MAKE or module:MAKE")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise click.UsageError(f"no file {place}; a function is named as FILE.py:MAKE or module:MAKE")
        sys.path.insert(0, str(path.parent))
        place = str(path)
    else:
        sys.path.insert(0, "")
    with contextlib.redirect_stdout(sys.stderr):  # what the program prints is not our answer
        make = find(f"{place}:{name}")
        made = make()
    return str(getattr(getattr(make, "__code__", None), "co_filename", place)), made
