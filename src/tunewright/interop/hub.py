"""Reads T4 results, T1 inputs and Kernel Tuner caches, and joins results with their inputs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import kernel_tuner, t4, untrusted
from tunewright.interop.table import ForeignTable


def read_tables(paths: Iterable[Path]) -> list[ForeignTable]:
    """Returns the recordings among `paths` (T4 results, Kernel Tuner caches), with matching T1 inputs."""
    recordings: list[tuple[Path, Any, list[str]]] = []
    inputs: list[t4.T1Input] = []
    for path in paths:
        notes: list[str] = []
        content = untrusted.check_object(untrusted.load(path, partial(kernel_tuner.repair_truncated, notes)), str(path))
        if "ConfigurationSpace" in content:
            inputs.append(t4.parse_input(content, str(path)))
        elif "results" in content or "cache" in content:
            recordings.append((path, content, notes))
        else:
            raise WireError(f"{path} is neither a T4 file, a T1 input nor a Kernel Tuner cache")
    if not recordings:
        raise WireError("none of these files has results; add T4 files or Kernel Tuner caches")
    return [_read_table(path, content, notes, inputs) for path, content, notes in recordings]


def _read_table(path: Path, content: dict[str, Any], notes: list[str], inputs: list[t4.T1Input]) -> ForeignTable:
    if "results" in content:
        table = t4.parse(content, str(path), t4.names_from_path(path))
    else:
        table = kernel_tuner.parse(content, str(path), notes)
    space = _find_input(table, inputs, path)
    return table if space is None else t4.with_input(table, space, str(path))


def _find_input(table: ForeignTable, inputs: list[t4.T1Input], path: Path) -> t4.T1Input | None:
    """Returns the input with the same knobs; of several, the one of the same kernel."""
    names = {knob.name for knob in table.knobs}
    matching = [space for space in inputs if space.names == names]
    if len(matching) > 1:
        matching = [space for space in matching if space.kernel == table.kernel] or matching
    if len(matching) > 1:
        raise WireError(f"{len(matching)} inputs have the parameters of {path}; import it with one of them at a time")
    return matching[0] if matching else None
