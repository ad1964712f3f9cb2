"""Mlir: what each step of a schedule does to its payload; tuning of MLIR kernels."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from tunewright.backends.mlir import engine
from tunewright.backends.mlir.backend import Mlir
from tunewright.backends.mlir.script import Script
from tunewright.backends.mlir.steps import Schedule
from tunewright.backends.mlir.writing import Payload
from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.cli.tune import tune
from tunewright.errors import ScheduleError
from tunewright.fronts.tuned import Tuned
from tunewright.pools.loading import find
from tunewright.report.steps import Stage, counted, differences, page

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def mlir() -> None:
    """Schedules of MLIR payloads: see what each step does, and tune."""


@mlir.command()
@click.argument("schedule")
@click.argument("payload", required=False)
@click.option("--config", help="For a tuned kernel: knobs as variant=packed rows,mr=8; without, its default.")
@click.option("--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write a page instead.")
@json_option
def steps(schedule: str, payload: str | None, config: str | None, page_at: Path | None, as_json: bool) -> None:
    """Show what each step of SCHEDULE does to PAYLOAD, as differences.

    SCHEDULE is a file with a transform script, or FILE.py:NAME of a schedule or of a kernel tuned with Mlir, which
    brings its payload along. PAYLOAD is a file with MLIR, or FILE.py:NAME of a payload.
    """
    script, text = _read(schedule, payload, config)
    named = {str(step): "\n".join(line.strip() for line in step.lines) for step in script.steps}
    stages, failed = [], None
    try:
        for name, code in engine.stages(text, script):
            stages.append(Stage(name, named.get(name, ""), code))
    except ScheduleError as error:
        failed = error
    if page_at:
        page_at.write_text(page(schedule, stages))
        output.say(f"{len(stages) - 1} steps written to {page_at}")
    elif as_json:
        output.as_json([stage._asdict() for stage in stages])
    else:
        _told(stages)
    if failed:
        raise failed


mlir.add_command(tune)


def _told(stages: list[Stage]) -> None:
    """Differences on the terminal, one step after another."""
    for before, stage in pairwise(stages):
        lines = differences(before.code, stage.code)
        output.say(f"{stage.name}  {counted(lines)}", "bold")
        for line in stage.script.splitlines():
            output.say(f"    {line}", "dim")
        for line in lines:
            output.say(line, _COLOURS.get(line[:1], ""))
        output.say()


def _read(schedule: str, payload: str | None, config: str | None) -> tuple[Script, str]:
    """From what was typed to a script and the text of a payload."""
    found = _at(schedule)
    if isinstance(found, Tuned):
        backend: Any = found.backend
        if not isinstance(backend, Mlir):
            raise click.UsageError(f"{schedule} is not built by Mlir, and has no schedule")
        settings = found.space.require(_settings(found, config)) if config else found.default
        return backend.script(settings), payload_text(payload) if payload else backend.payload.text
    if isinstance(found, Schedule):
        found = found.script()
    if not isinstance(found, Script | str):
        raise click.UsageError(
            f"{schedule} is no schedule but a {type(found).__name__}; name a Schedule, or a kernel tuned with Mlir"
        )
    if payload is None:
        raise click.UsageError("say on which payload: tunewright mlir steps SCHEDULE PAYLOAD")
    return found if isinstance(found, Script) else Script.parse(str(found)), payload_text(payload)


def payload_text(place: str) -> str:
    """The MLIR at a file or FILE.py:NAME."""
    found = _at(place)
    if not isinstance(found, Payload | str):
        raise click.UsageError(f"{place} is no payload but a {type(found).__name__}; name a file or a Payload")
    return found.text if isinstance(found, Payload) else found


def _at(place: str) -> Any:
    """The text of a file, or the object at FILE.py:NAME."""
    path = Path(place)
    if path.is_file():
        return path.read_text()
    file, _, name = place.rpartition(":")
    if not file or not Path(file).is_file():
        raise click.UsageError(f"no file {place}; give a file, or FILE.py:NAME")
    sys.path.insert(0, str(Path(file).resolve().parent))
    return find(f"{Path(file).resolve()}:{name}")


def _settings(kernel: Tuned, text: str) -> dict[str, Any]:
    """Knobs as typed, each as that value of the space that reads the same."""
    typed = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    own = [*kernel.space.knobs, *(knob for variant in kernel.space.variants for knob in variant.knobs)]
    values = {knob.name: {str(value): value for value in knob.values} for knob in own}
    return {name: values.get(name, {}).get(value, value) for name, value in typed.items()}
