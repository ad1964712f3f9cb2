"""`tunewright mlir`: the effect of each step of a schedule on its payload, and tuning of MLIR kernels."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.mlir_tune import tune_payload
from tunewright.cli.targets import json_option
from tunewright.errors import ScheduleError
from tunewright.kernel.tuned import Tuned
from tunewright.mlir import compiler
from tunewright.mlir.backend import Mlir
from tunewright.mlir.models import read_model
from tunewright.mlir.payload import Payload
from tunewright.mlir.schedule import Schedule
from tunewright.mlir.script import TransformScript
from tunewright.mlir.step_report import StepSnapshot, diff_lines, diff_size, page
from tunewright.mlir.step_texts import explain_script
from tunewright.pools.kernel_loader import load_target

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def mlir() -> None:
    """Show and tune schedules of MLIR payloads."""


@mlir.command()
@click.argument("schedule")
@click.argument("payload", required=False)
@click.option("--config", help="Knobs of a tuned kernel, as variant=packed rows,mr=8 (default: its default).")
@click.option("--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write a page instead.")
@json_option
def steps(schedule: str, payload: str | None, config: str | None, page_at: Path | None, as_json: bool) -> None:
    """Show what each step of SCHEDULE does to PAYLOAD, as differences.

    SCHEDULE is a file with a transform script, or FILE.py:NAME of a schedule or of a kernel tuned with Mlir, which
    brings its payload along. PAYLOAD is a file with MLIR, or FILE.py:NAME of a payload.
    """
    script, text = _read(schedule, payload, config)
    sources = {str(step): "\n".join(line.strip() for line in step.lines) for step in script.steps}
    snapshots, failure = [], None
    try:
        for name, code in compiler.apply_steps(text, script):
            snapshots.append(StepSnapshot(name, sources.get(name, ""), code))
    except ScheduleError as error:
        failure = error
    if page_at:
        page_at.write_text(page(schedule, snapshots))
        output.echo(f"{len(snapshots) - 1} steps written to {page_at}")
    elif as_json:
        output.print_json([snapshot._asdict() for snapshot in snapshots])
    else:
        _print_steps(snapshots)
    if failure:
        raise failure


@mlir.command()
@click.argument("schedule", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def explain(schedule: Path, as_json: bool) -> None:
    """Say what each step of SCHEDULE, a file with a transform script, does.

    `tunewright mlir steps SCHEDULE PAYLOAD` shows it on a payload.
    """
    lines = explain_script(TransformScript.parse(schedule.read_text()))
    if as_json:
        output.print_json(lines)
    else:
        output.echo("\n".join(lines))


mlir.add_command(tune_payload)


def _print_steps(snapshots: list[StepSnapshot]) -> None:
    """Prints the difference that each step makes."""
    for before, after in pairwise(snapshots):
        lines = diff_lines(before.code, after.code)
        output.echo(f"{after.name}  {diff_size(lines)}", "bold")
        for line in after.script.splitlines():
            output.echo(f"    {line}", "dim")
        for line in lines:
            output.echo(line, _COLORS.get(line[:1], ""))
        output.echo()


def _read(schedule: str, payload: str | None, config: str | None) -> tuple[TransformScript, str]:
    """Returns the script and the text of the payload that were named."""
    value = _load(schedule)
    if isinstance(value, Tuned):
        backend: Any = value.backend
        if not isinstance(backend, Mlir):
            raise click.UsageError(f"{schedule} is not built by Mlir, and has no schedule")
        chosen = value.space.require(_parse_knobs(value, config)) if config else value.default
        return backend.script(chosen), payload_text(payload) if payload else backend.payload.text
    if isinstance(value, Schedule):
        value = value.script()
    if not isinstance(value, TransformScript | str):
        raise click.UsageError(
            f"{schedule} is a {type(value).__name__}, not a schedule; name a Schedule, or a kernel tuned with Mlir"
        )
    if payload is None:
        raise click.UsageError("name a payload: tunewright mlir steps SCHEDULE PAYLOAD")
    return value if isinstance(value, TransformScript) else TransformScript.parse(str(value)), payload_text(payload)


def payload_text(place: str) -> str:
    """Returns the MLIR at a file or FILE.py:NAME."""
    value = _load(place)
    if not isinstance(value, Payload | str):
        raise click.UsageError(f"{place} is a {type(value).__name__}, not a payload; name a file or a Payload")
    return value.text if isinstance(value, Payload) else read_model(value, place).text


def _load(place: str) -> Any:
    """Returns the text of a file, or the object at FILE.py:NAME."""
    path = Path(place)
    if path.is_file():
        return path.read_text()
    file, _, name = place.rpartition(":")
    if not file or not Path(file).is_file():
        raise click.UsageError(f"no file {place}; give a file, or FILE.py:NAME")
    sys.path.insert(0, str(Path(file).resolve().parent))
    return load_target(f"{Path(file).resolve()}:{name}")


def _parse_knobs(kernel: Tuned, text: str) -> dict[str, Any]:
    """Returns knobs from text, each with the value of the space that is written the same."""
    typed = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    knobs = [*kernel.space.knobs, *(knob for variant in kernel.space.variants for knob in variant.knobs)]
    values = {knob.name: {str(value): value for value in knob.values} for knob in knobs}
    return {name: values.get(name, {}).get(value, value) for name, value in typed.items()}
