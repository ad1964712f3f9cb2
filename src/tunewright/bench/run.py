"""Run: what a bench measured: bouts of cells, with all rounds, to be looked at and compared with later."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec

from tunewright.bench.calls import Call
from tunewright.bench.work import Roof, Work
from tunewright.errors import StoreError, WireError
from tunewright.sharing import wire

SCHEMA = 1
FILE, TABLE = "run.json", "cells.csv"

Samples = tuple[tuple[float, ...], ...]
"""Seconds a launch, by sitting and round."""


class Mishap(msgspec.Struct, frozen=True):
    """What kept an implementation from its cell: refused, wrong, raised, crashed, hung, memory, leaked; where; why."""

    kind: str
    stage: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.stage}): {self.reason}"


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One implementation at one call: what it took, or its mishap."""

    implementation: str
    samples: Samples = ()
    mishap: Mishap | None = None
    config: dict[str, Any] = {}
    build_seconds: float = 0.0
    error: float | None = None


class Bout(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, and the cells that were raced for it in the same rounds, with an anchor among them."""

    call: Call
    cells: tuple[Cell, ...]
    work: Work
    clock: str = ""
    anchor: str = ""
    anchors: Samples = ()

    def cell(self, name: str) -> Cell | None:
        """The cell of an implementation, if it has one."""
        return next((cell for cell in self.cells if cell.implementation == name), None)


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole bench: where and how it ran, the roof, and its bouts."""

    schema: int
    version: str
    at: float
    machine: str
    toolchain: dict[str, str]
    threads: int
    isolated: bool
    roof: Roof
    bouts: tuple[Bout, ...]
    complaints: tuple[str, ...] = ()

    def cells(self) -> Iterator[tuple[Bout, Cell]]:
        """Every cell, with its bout."""
        for bout in self.bouts:
            for cell in bout.cells:
                yield bout, cell


def save(run: Run, folder: Path) -> None:
    """Keep a run in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{FILE}.{os.getpid()}"
    fresh.write_bytes(wire.encode(run))
    os.replace(fresh, folder / FILE)


def load(folder: Path) -> Run:
    """The run that a folder keeps."""
    path = folder / FILE if folder.is_dir() else folder
    try:
        run = wire.decode(path.read_bytes(), Run)
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
    """Rows of equal fields as CSV."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
