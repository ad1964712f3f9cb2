"""Results of a benchmark: comparisons of cells with all their samples, saved in a folder to be compared later."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tunewright.bench.calls import OperatorCall
from tunewright.bench.work import CallWork, MachineRoofline
from tunewright.errors import StoreError, WireError
from tunewright.stores import files, serialization

SCHEMA = 1
FILE, TABLE = "run.json", "cells.csv"

Samples = tuple[tuple[float, ...], ...]
"""Seconds of a launch, by repeat and round."""


class CandidateFailure(msgspec.Struct, frozen=True):
    """Why an implementation has no samples.

    `kind` is refused, wrong, raised, crashed, hung, memory or leaked.
    """

    kind: str
    stage: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.stage}): {self.reason}"


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One implementation at one call: its samples, or its failure."""

    implementation: str
    samples: Samples = ()
    failure: CandidateFailure | None = msgspec.field(default=None, name="mishap")
    config: dict[str, Any] = {}
    build_seconds: float = 0.0
    error: float | None = None


class CallComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, and the cells that ran for it in the same rounds, with the samples of an anchor."""

    call: OperatorCall
    cells: tuple[Cell, ...]
    work: CallWork
    clock: str = ""
    anchor: str = ""
    anchors: Samples = ()

    def cell(self, name: str) -> Cell | None:
        """Returns the cell of an implementation, if it has one."""
        return next((cell for cell in self.cells if cell.implementation == name), None)


class BenchRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole benchmark: where and how it ran, the roofline, and its comparisons."""

    schema: int
    version: str
    at: float
    machine: str
    toolchain: dict[str, str]
    threads: int
    isolated: bool
    roof: MachineRoofline
    comparisons: tuple[CallComparison, ...] = msgspec.field(name="bouts")
    complaints: tuple[str, ...] = ()

    def cells(self) -> Iterator[tuple[CallComparison, Cell]]:
        """Yields every cell with its comparison."""
        for comparison in self.comparisons:
            for cell in comparison.cells:
                yield comparison, cell


def save_run(run: BenchRun, folder: Path) -> None:
    """Writes a run to a folder."""
    files.write_atomic(folder / FILE, serialization.encode(run))


def load_run(folder: Path) -> BenchRun:
    """Reads the run in a folder."""
    path = folder / FILE if folder.is_dir() else folder
    try:
        run = serialization.decode(path.read_bytes(), BenchRun)
    except OSError as error:
        raise StoreError(
            f"no run in {folder}: {error.strerror}; make one with: tunewright bench --save {folder}"
        ) from error
    except WireError as error:
        raise WireError(f"{path}: {error}") from error
    if run.schema != SCHEMA:
        raise WireError(f"{path} was written by schema {run.schema}, this version reads {SCHEMA}")
    return run


def write_csv(file: TextIO, rows: list[dict[str, Any]]) -> None:
    """Writes rows with equal fields as CSV."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
