"""Import: recordings of other tools, such as the benchmark hub's, into our format."""

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
from tunewright.interop.table import Table
from tunewright.model.trial import median
from tunewright.report import words

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--out", type=_FOLDER, required=True, help="Where to write NAME.parquet and NAME.json.")
@click.option("--kernel", help="Call the kernel so (default: as its file does).")
@click.option("--device", help="Call the device so (default: as its file does).")
@json_option
def import_(files: tuple[Path, ...], out: Path, kernel: str | None, device: str | None, as_json: bool) -> None:
    """Write recordings of other tools as ours, to be replayed.

    FILES are T4 results and caches of Kernel Tuner (.json, or .json.gz as the benchmark hub keeps them). A T1 input
    among them gives its constraints to every recording of the same parameters; without one, the recorded configs
    stand for the space.
    """
    made: dict[str, tuple[Table, Recording]] = {}
    for table in hub.tables(files):
        recording = recorded(table, kernel or table.kernel, device or table.device)
        name = f"{_plain(recording.kernel)}-{_plain(recording.device)}"
        if name in made:
            raise click.UsageError(f"two of these files would be written as {name}; import one, then the other")
        made[name] = table, recording
    out.mkdir(parents=True, exist_ok=True)
    said = []
    for name, (table, recording) in made.items():
        recording.write(out / f"{name}.parquet")
        said.append(_summary(name, table, recording))
    if as_json:
        output.as_json(said)
        return
    output.table(
        ("recording", "configs", "of", "failed", "optimum", "median"),
        (
            [
                s["name"],
                f"{s['configs']:,}",
                _of(s),
                f"{s['failed']:,}",
                *map(words.seconds, (s["optimum"], s["median"])),
            ]
            for s in said
        ),
    )
    for one in said:
        for note in one["notes"]:
            output.say(f"- {one['name']}: {note}")


def recorded(table: Table, kernel: str, device: str) -> Recording:
    """What a table says as a recording: its constraints are read as arithmetic, and each of its configs keeps them."""
    recording = Recording.told(kernel, device, table.knobs, table.constraints, table.trials)
    if not any(trial.works for trial in table.trials):
        raise NothingWorked(
            f"{kernel} on {device}: none of {len(table.trials):,} configs has a time; nothing to replay"
        )
    if table.constraints is not None:
        for config in recording.trials:
            if reasons := recording.space.objections(config):
                raise WireError(
                    f"{kernel} on {device}: the recorded {config} breaks {'; '.join(reasons)}; "
                    "leave the input file away, and the recorded configs stand for the space"
                )
    return recording


def _summary(name: str, table: Table, recording: Recording) -> dict[str, Any]:
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


def _of(said: dict[str, Any]) -> str:
    return "?" if said["space"] is None else f"{said['space']:,}"


def _plain(name: str) -> str:
    """A name from a file as part of a file's name: letters, digits and little else."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name).strip("._")[:80] or "unnamed"
