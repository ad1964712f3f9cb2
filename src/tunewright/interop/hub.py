"""Hub: several files of other tools, told apart by what they hold; results joined with the inputs they came from."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge, kernel_tuner, t4
from tunewright.interop.table import Table


def tables(paths: Iterable[Path]) -> list[Table]:
    """The recordings among `paths`: T4 results and Kernel Tuner caches, with constraints where a T1 input is given."""
    recordings: list[tuple[Path, Any, list[str]]] = []
    inputs: list[t4.Input] = []
    for path in paths:
        notes: list[str] = []
        content = edge.mapping(edge.load(path, partial(kernel_tuner.closed, notes)), str(path))
        if "ConfigurationSpace" in content:
            inputs.append(t4.told_input(content, str(path)))
        elif "results" in content or "cache" in content:
            recordings.append((path, content, notes))
        else:
            raise WireError(f"{path} is neither a T4 file, a T1 input nor a cache of Kernel Tuner")
    if not recordings:
        raise WireError("no file with results among these; give T4 files or caches of Kernel Tuner, too")
    return [_table(path, content, notes, inputs) for path, content, notes in recordings]


def _table(path: Path, content: dict[str, Any], notes: list[str], inputs: list[t4.Input]) -> Table:
    if "results" in content:
        table = t4.told(content, str(path), t4.names_in(path))
    else:
        table = kernel_tuner.told(content, str(path), notes)
    space = _matching(table, inputs, path)
    return table if space is None else t4.within(table, space, str(path))


def _matching(table: Table, inputs: list[t4.Input], path: Path) -> t4.Input | None:
    """The input of the same knobs; of several, the one of the same kernel."""
    names = {knob.name for knob in table.knobs}
    found = [space for space in inputs if space.names == names]
    if len(found) > 1:
        found = [space for space in found if space.kernel == table.kernel] or found
    if len(found) > 1:
        raise WireError(f"{len(found)} inputs have the parameters of {path}; import it with one of them at a time")
    return found[0] if found else None
