"""The two sides of a gate: commands, Python functions or C functions, here or in two checkouts."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tunewright.errors import BackendError, SettingsError
from tunewright.gate.c_functions import DEFAULT_FLAGS, compile_function
from tunewright.gate.function_process import FunctionPlace, FunctionProcess, import_path
from tunewright.gate.verdict import Contest, Pair
from tunewright.pools.command_times import ProcessTimes, cannot_run, describe_failure, split_command, time_command
from tunewright.pools.kernel_loader import C_FUNCTION, FUNCTION

MIN_ROUNDS, MIN_ROUND_SECONDS = 6, 0.25
"""Rounds of each pair of processes: at least so many, and for about so long, or as long as it took to start them."""

COMMAND_LIMIT = 600.0
"""Seconds after which a command is killed."""


class SideKind(StrEnum):
    """What a side is."""

    COMMAND = "command"
    FUNCTION = "function"
    C_FUNCTION = "C function"


@dataclass(frozen=True)
class Side:
    """One side: what was typed, where it runs, and the checkout it is from, if two are compared."""

    typed: str
    kind: SideKind
    folder: Path
    root: Path | None = None
    other: Path | None = None  # the other checkout
    harness: bool = False  # the file is the one here, and only what it imports is from the checkout
    here: Path | None = None  # the folder that a harness is in

    @property
    def file(self) -> Path:
        """The file of a function."""
        path = Path(self.typed.rpartition(":")[0])
        return ((self.here if self.harness and self.here else self.folder) / path).resolve()

    def place(self, target: str | None = None) -> FunctionPlace:
        """Returns where the function is to be loaded from."""
        name = self.typed.rpartition(":")[2]
        is_file = self.typed.rpartition(":")[0].endswith(".py")
        target = target or (f"{self.file}:{name}" if is_file else self.typed)
        path = import_path(self.root, self.other) if self.root else (str(self.folder), *import_path(None, None))
        foreign = self.other if self.root and self.other and not self.root.is_relative_to(self.other) else None
        allowed = str(self.file) if self.harness else ""
        return FunctionPlace(target, path, str(self.folder), str(foreign or ""), allowed)


def parse_side(typed: str, folder: Path) -> Side:
    """Returns a side from what was typed: "a command", FILE.py:NAME, module:NAME or FILE.c:NAME.

    Raises SettingsError for what cannot be any.
    """
    if C_FUNCTION.fullmatch(typed):
        return Side(typed, SideKind.C_FUNCTION, folder)
    if match := FUNCTION.fullmatch(typed):
        if match["place"].endswith(".py") and not (folder / match["place"]).is_file():
            raise SettingsError(f"no file {match['place']}; a function is named as FILE.py:NAME or module:NAME")
        return Side(typed, SideKind.FUNCTION, folder)
    split_command(typed)
    return Side(typed, SideKind.COMMAND, folder)


def in_checkouts(side: Side, top: Path, baseline: Path) -> tuple[Side, Side]:
    """Returns a side at the same place in the other checkout, and as it is here."""
    inside = side.folder.resolve().relative_to(top)
    before = replace(side, folder=baseline / inside, root=baseline, other=top, here=side.folder)
    if not before.folder.is_dir():
        raise SettingsError(f"the baseline has no folder {inside}, so there is nothing to compare with")
    return before, replace(side, root=top, other=baseline, here=side.folder)


@contextlib.contextmanager
def open_sides(first: Side, second: Side, flags: str = DEFAULT_FLAGS) -> Iterator[Contest]:
    """Yields the two sides, ready to be sampled; raises SettingsError if they are not of one kind."""
    kinds = {first.kind, second.kind}
    if SideKind.COMMAND in kinds and len(kinds) > 1:
        raise SettingsError("a command and a function cannot be held to a limit; write the command as a function too")
    if kinds == {SideKind.COMMAND}:
        yield CommandContest(first, second)
        return
    with tempfile.TemporaryDirectory(prefix="tunewright-gate-") as scratch:
        places = []
        for number, side in enumerate((first, second)):
            target = None
            if side.kind is SideKind.C_FUNCTION:
                library = compile_function(side.file, Path(scratch) / f"side{number}.so", flags)
                target = f"{library}:{side.typed.rpartition(':')[2]}"
            places.append(side.place(target))
        yield FunctionContest(places)


class CommandContest:
    """Two commands; each run is a process of its own, so every pair counts."""

    def __init__(self, first: Side, second: Side) -> None:
        self._sides = (first, second)
        self._environs = [_environ(side) for side in self._sides]
        self._warm = False

    def draw(self, swap: bool, seconds: float) -> Sequence[Pair]:
        """Runs each command once; before the first pair, once more to read the programs from the disk."""
        if not self._warm:
            self._warm = True
            self._run(0)
            self._run(1)
        if swap:
            second = self._run(1)
            return [(self._run(0), second)]
        first = self._run(0)
        return [(first, self._run(1))]

    def _run(self, number: int) -> ProcessTimes:
        side = self._sides[number]
        with tempfile.TemporaryFile() as errors:
            try:
                status, times = time_command(
                    split_command(side.typed),
                    errors,
                    folder=side.folder,
                    environ=self._environs[number],
                    limit=COMMAND_LIMIT,
                )
            except OSError as error:
                raise cannot_run(side.typed, str(error.strerror)) from error
            if status:
                raise BackendError(describe_failure(side.typed, status, errors))
        return times


class FunctionContest:
    """Two functions, each in a process of its own; new processes for every draw.

    Where the memory of a process lies makes a function faster or slower for all its life: only other processes show
    how much of a difference is due to that.
    """

    def __init__(self, places: Sequence[FunctionPlace]) -> None:
        self._places = places

    def draw(self, swap: bool, seconds: float) -> Sequence[Pair]:
        """Starts both functions anew, and times them in turn."""
        began = time.monotonic()
        processes: list[FunctionProcess] = []
        try:
            order = self._places[::-1] if swap else self._places
            for place in order:
                processes.append(FunctionProcess(place))
                processes[-1].start()
            started = time.monotonic()
            limit = min(max(MIN_ROUND_SECONDS, started - began), max(seconds, MIN_ROUND_SECONDS))
            return _rounds(processes[::-1] if swap else processes, started + limit)
        finally:
            for process in processes:
                process.close()


def _rounds(processes: Sequence[FunctionProcess], until: float) -> list[Pair]:
    """Returns pairs of samples; which one comes first changes from round to round."""
    count = max(process.count for process in processes)
    pairs: list[Pair] = []
    first, second = processes
    while len(pairs) < MIN_ROUNDS or time.monotonic() < until:
        if len(pairs) % 2:
            late = second.sample(count)
            pairs.append((first.sample(count), late))
        else:
            early = first.sample(count)
            pairs.append((early, second.sample(count)))
    return pairs


def _environ(side: Side) -> Mapping[str, str] | None:
    """Returns the environment of a command: in a checkout, Python imports what lies there first."""
    if side.root is None:
        return None
    own = [str(folder) for folder in (side.root / "src", side.root) if folder.is_dir()]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # noqa: TID251 - extended and handed on
    path = os.pathsep.join([*own, *filter(None, given)])
    return {**os.environ, "PYTHONPATH": path, "PWD": str(side.folder)}  # noqa: TID251 - handed on
