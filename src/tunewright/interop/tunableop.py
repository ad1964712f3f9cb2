"""TunableOp's results: the CSV by which PyTorch remembers which library's kernel is the fastest for a product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import edge
from tunewright.interop.table import Row
from tunewright.spaces.config import Config

VALIDATOR = "Validator"
MANDATORY = "PT_VERSION"
"""The validator without which PyTorch takes no file."""

ARCHITECTURE = "GCN_ARCH_NAME"
ABSENT = "(absent)"
KERNEL_KNOB = "kernel"

_OP = re.compile(r"(?:Gemm|GemmAndBias|GemmStridedBatched|ScaledGemm)TunableOp_\w+_([NTC]{2})", re.ASCII)
_PARAMS = re.compile(
    r"(?P<trans>[ntc]{2})_(?P<M>\d+)_(?P<N>\d+)_(?P<K>\d+)(?:_B_(?P<B>\d+))?(?P<ld>_ld_\d+_\d+_\d+)?(?P<more>_rw_\w+)?",
    re.ASCII,
)
_DIMS = ("M", "N", "K", "B")


@dataclass(frozen=True)
class Result:
    """One line: for a product of these sizes, which kernel, and the milliseconds it took if they are said."""

    op: str
    params: str
    kernel: str
    milliseconds: float | None = None

    @property
    def dims(self) -> dict[str, int]:
        """The sizes its parameters name; B where products come in batches."""
        found = _PARAMS.fullmatch(self.params)
        return {name: int(found[name]) for name in _DIMS if found[name] is not None} if found else {}


def objection(op: str, params: str) -> str:
    """Why PyTorch never asks for such an operator and parameters; nothing if it may."""
    named, sized = _OP.fullmatch(op), _PARAMS.fullmatch(params)
    if named is None:
        return f"no operator is called {edge.shown(op)}"
    if sized is None:
        return f"no parameters look like {edge.shown(params)}"
    if named[1].lower() != sized["trans"]:
        return f"{named[1]} in the operator and {sized['trans']} in its parameters contradict each other"
    return ""


def has_strides(params: str) -> bool | None:
    """Whether parameters name leading dimensions, as newer versions write them; None if they are none."""
    found = _PARAMS.fullmatch(params)
    return None if found is None else found["ld"] is not None


@dataclass(frozen=True)
class Results:
    """What a file says: the versions it holds for, and a kernel for each product that was tuned."""

    validators: Mapping[str, str]
    rows: tuple[Result, ...]

    def validated(self, expected: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The validators that are not as expected: (expected, actual); with any, PyTorch takes nothing of the file."""
        names = [*expected, *(name for name in self.validators if name not in expected)]
        pairs = {name: (expected.get(name, ABSENT), self.validators.get(name, ABSENT)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def find(self, op: str, params: str) -> Result | None:
        """What PyTorch finds for a product: the first line for it."""
        return next((row for row in self.rows if (row.op, row.params) == (op, params)), None)

    def told(self) -> Iterator[Row]:
        """Its lines in words of ours: what to try first, not what is decided. The kernel is one knob."""
        device = self.validators.get(ARCHITECTURE, "")
        for row in self.rows:
            yield Row(row.dims, Config({KERNEL_KNOB: row.kernel}), device)


@dataclass(frozen=True)
class Line:
    """A line as PyTorch takes it: a validator, a result, or nothing, and then why."""

    number: int
    validator: tuple[str, str] | None = None
    result: Result | None = None
    problem: str = ""


def parsed(path: Path) -> Iterator[Line]:
    """The lines of a file, each with what is wrong with it; what is after the fourth field is left out."""
    found = edge.lines(path)
    for number, text in enumerate(found, 1):
        if text or number < len(found):
            yield _line(number, text, whole=number < len(found))


def _line(number: int, text: str, whole: bool) -> Line:
    fields = text.split(",")
    problem = "" if whole else "it does not end with a line break, so it may be cut off"
    if "\r" in text:
        problem = "it ends with a carriage return, which PyTorch takes for a part of the last field"
    if fields[-1] == "":  # as PyTorch splits a line, nothing after the last comma is no field
        fields.pop()
    if fields and fields[0] == VALIDATOR:
        if len(fields) < 3:
            return Line(number, problem="a validator without a value, which PyTorch passes over")
        return Line(number, validator=(fields[1], fields[2].rstrip("\r")), problem=problem)
    if len(fields) < 3:
        return Line(number, problem=f"{edge.shown(text)} has {len(fields)} fields, and PyTorch passes over it")
    time, objected = _milliseconds(fields[3]) if len(fields) > 3 else (None, "")
    return Line(number, result=Result(fields[0], fields[1], fields[2].rstrip("\r"), time), problem=objected or problem)


def _milliseconds(text: str) -> tuple[float | None, str]:
    try:
        time = float(text)
    except ValueError:
        return None, f"{edge.shown(text)} is no time"
    return (time, "") if isfinite(time) and time >= 0 else (None, f"{edge.shown(text)} is no time")


def read(path: Path) -> Results:
    """The results in the file at `path`; of a product met twice, PyTorch keeps the first, and so does `find`."""
    validators: dict[str, str] = {}
    rows: list[Result] = []
    for line in parsed(path):
        if line.problem:
            raise WireError(f"{path}: line {line.number}: {line.problem}; get it anew")
        if line.validator is not None:
            validators[line.validator[0]] = line.validator[1]
        elif line.result is not None:
            rows.append(line.result)
    return Results(validators, tuple(rows))


def write(results: Results, path: Path) -> None:
    """Keep `results` as PyTorch writes them."""
    written: list[tuple[str, ...]] = [(VALIDATOR, name, value) for name, value in results.validators.items()]
    written += [(row.op, row.params, row.kernel, *_shown(row.milliseconds)) for row in results.rows]
    for field in (field for fields in written for field in fields):
        if re.search(r"^$|[,\r\n]", field):
            raise WireError(f"{edge.shown(field)} cannot be a field: it is empty, or has a comma or a line break")
    edge.put(path, "".join(",".join(fields) + "\n" for fields in written))


def _shown(milliseconds: float | None) -> tuple[str, ...]:
    return () if milliseconds is None else (f"{milliseconds:.6g}",)
