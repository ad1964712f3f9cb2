"""`tunewright replay import`: recordings of other tools, such as the benchmark hub, converted into ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tunewright.backends.replay import Recording
from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.errors import NothingWorked, SpaceError, WireError
from tunewright.interop import hub
from tunewright.interop.table import ForeignTable
from tunewright.model.trial import median
from tunewright.report import formatting

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--out", type=_FOLDER, required=True, help="Where to write NAME.parquet and NAME.json.")
@click.option("--kernel", help="Name of the kernel (default: as in its file).")
@click.option("--device", help="Name of the device (default: as in its file).")
@json_option
def import_(files: tuple[Path, ...], out: Path, kernel: str | None, device: str | None, as_json: bool) -> None:
    """Convert recordings of other tools into ours.

    FILES are T4 results and caches of Kernel Tuner (.json, or .json.gz as the benchmark hub keeps them). A T1 input
    among them gives its constraints to every recording of the same parameters; without one, the recorded configs
    are the space.
    """
    imported: dict[str, tuple[ForeignTable, Recording]] = {}
    for table in hub.read_tables(files):
        recording = to_recording(table, kernel or table.kernel, device or table.device)
        name = f"{_file_name(recording.kernel)}-{_file_name(recording.device)}"
        if name in imported:
            raise click.UsageError(f"two of these files would be written as {name}; import one, then the other")
        imported[name] = table, recording
    out.mkdir(parents=True, exist_ok=True)
    summaries = []
    for name, (table, recording) in imported.items():
        recording.write(out / f"{name}.parquet")
        summaries.append(_summary(name, table, recording))
    if as_json:
        output.print_json(summaries)
        return
    output.print_table(
        ("recording", "configs", "of", "failed", "optimum", "median"),
        (
            [
                summary["name"],
                f"{summary['configs']:,}",
                "?" if summary["space"] is None else f"{summary['space']:,}",
                f"{summary['failed']:,}",
                *map(formatting.seconds, (summary["optimum"], summary["median"])),
            ]
            for summary in summaries
        ),
    )
    for summary in summaries:
        for note in summary["notes"]:
            output.echo(f"- {summary['name']}: {note}")


def to_recording(table: ForeignTable, kernel: str, device: str) -> Recording:
    """Returns a table as a recording; raises if a recorded config violates the constraints."""
    recording = Recording.from_table(kernel, device, table.knobs, table.constraints, table.trials)
    if not any(trial.works for trial in table.trials):
        raise NothingWorked(
            f"{kernel} on {device}: none of {len(table.trials):,} configs has a time; nothing to replay"
        )
    if table.constraints is not None:
        for config in recording.trials:
            if reasons := recording.space.objections(config):
                raise WireError(
                    f"{kernel} on {device}: the recorded {config} breaks {'; '.join(reasons)}; "
                    "omit the input file, and the recorded configs are the space"
                )
    return recording


def _summary(name: str, table: ForeignTable, recording: Recording) -> dict[str, Any]:
    times = [trial.seconds for trial in recording.trials.values() if trial.works]
    try:
        size: int | None = recording.space.size
    except SpaceError:  # too large to enumerate
        size = None
    return {
        "name": name,
        "kernel": recording.kernel,
        "device": recording.device,
        "configs": len(recording.trials),
        "space": size,
        "failed": len(recording.trials) - len(times),
        "optimum": min(times),
        "median": median(times),
        "notes": list(table.notes),
    }


def _file_name(name: str) -> str:
    """Returns a name that is safe as part of a file's name: letters, digits and little else."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name).strip("._")[:80] or "unnamed"
