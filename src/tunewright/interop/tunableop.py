"""Reads and writes TunableOp results: PyTorch's CSV of the fastest library kernel for each GEMM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import untrusted
from tunewright.interop.table import ForeignRow
from tunewright.spaces.config import Config

VALIDATOR = "Validator"
MANDATORY = "PT_VERSION"
"""Validator that PyTorch requires."""

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
class TunedGemm:
    """One line: the kernel for a GEMM, and its milliseconds if recorded."""

    op: str
    params: str
    kernel: str
    milliseconds: float | None = None

    @property
    def dims(self) -> dict[str, int]:
        """Sizes in the parameters; B for batched GEMMs."""
        found = _PARAMS.fullmatch(self.params)
        return {name: int(found[name]) for name in _DIMS if found[name] is not None} if found else {}


def lookup_problem(op: str, params: str) -> str:
    """Returns why PyTorch never looks up such an operator and parameters; "" if it may."""
    named, sized = _OP.fullmatch(op), _PARAMS.fullmatch(params)
    if named is None:
        return f"no operator is called {untrusted.quote(op)}"
    if sized is None:
        return f"no parameters look like {untrusted.quote(params)}"
    if named[1].lower() != sized["trans"]:
        return f"{named[1]} in the operator and {sized['trans']} in its parameters contradict each other"
    return ""


def has_strides(params: str) -> bool | None:
    """Returns whether parameters have leading dimensions, as in newer versions; None if they are invalid."""
    found = _PARAMS.fullmatch(params)
    return None if found is None else found["ld"] is not None


@dataclass(frozen=True)
class TunableOpResults:
    """Contents of a file: the versions it is valid for, and a kernel for each tuned GEMM."""

    validators: Mapping[str, str]
    rows: tuple[TunedGemm, ...]

    def validated(self, expected: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Returns validators that differ as (expected, actual); with any, PyTorch ignores the file."""
        names = [*expected, *(name for name in self.validators if name not in expected)]
        pairs = {name: (expected.get(name, ABSENT), self.validators.get(name, ABSENT)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def find(self, op: str, params: str) -> TunedGemm | None:
        """Returns what PyTorch finds for a GEMM: its first line."""
        return next((row for row in self.rows if (row.op, row.params) == (op, params)), None)

    def foreign_rows(self) -> Iterator[ForeignRow]:
        """Yields the lines as configs to try first; the kernel is one knob."""
        device = self.validators.get(ARCHITECTURE, "")
        for row in self.rows:
            yield ForeignRow(row.dims, Config({KERNEL_KNOB: row.kernel}), device)


@dataclass(frozen=True)
class ResultLine:
    """A line as PyTorch reads it: a validator, a result, or neither and the problem."""

    number: int
    validator: tuple[str, str] | None = None
    result: TunedGemm | None = None
    problem: str = ""


def parse_lines(path: Path) -> Iterator[ResultLine]:
    """The lines of a file, each with what is wrong with it; what is after the fourth field is left out."""
    found = untrusted.read_lines(path)
    for number, text in enumerate(found, 1):
        if text or number < len(found):
            yield _parse_line(number, text, whole=number < len(found))


def _parse_line(number: int, text: str, whole: bool) -> ResultLine:
    fields = text.split(",")
    problem = "" if whole else "it does not end with a line break, so it may be cut off"
    if "\r" in text:
        problem = "it ends with a carriage return, which PyTorch takes for a part of the last field"
    if fields[-1] == "":  # as PyTorch splits a line, nothing after the last comma is no field
        fields.pop()
    if fields and fields[0] == VALIDATOR:
        if len(fields) < 3:
            return ResultLine(number, problem="a validator without a value, which PyTorch passes over")
        return ResultLine(number, validator=(fields[1], fields[2].rstrip("\r")), problem=problem)
    if len(fields) < 3:
        return ResultLine(
            number, problem=f"{untrusted.quote(text)} has {len(fields)} fields, and PyTorch passes over it"
        )
    time, objected = _parse_time(fields[3]) if len(fields) > 3 else (None, "")
    return ResultLine(
        number, result=TunedGemm(fields[0], fields[1], fields[2].rstrip("\r"), time), problem=objected or problem
    )


def _parse_time(text: str) -> tuple[float | None, str]:
    try:
        time = float(text)
    except ValueError:
        return None, f"{untrusted.quote(text)} is no time"
    return (time, "") if isfinite(time) and time >= 0 else (None, f"{untrusted.quote(text)} is no time")


def read(path: Path) -> TunableOpResults:
    """Returns the results in a file; of a repeated GEMM, PyTorch and `find` use the first."""
    validators: dict[str, str] = {}
    rows: list[TunedGemm] = []
    for line in parse_lines(path):
        if line.problem:
            raise WireError(f"{path}: line {line.number}: {line.problem}; get it anew")
        if line.validator is not None:
            validators[line.validator[0]] = line.validator[1]
        elif line.result is not None:
            rows.append(line.result)
    return TunableOpResults(validators, tuple(rows))


def write(results: TunableOpResults, path: Path) -> None:
    """Write `results` as PyTorch does."""
    written: list[tuple[str, ...]] = [(VALIDATOR, name, value) for name, value in results.validators.items()]
    written += [(row.op, row.params, row.kernel, *_format_time(row.milliseconds)) for row in results.rows]
    for field in (field for fields in written for field in fields):
        if re.search(r"^$|[,\r\n]", field):
            raise WireError(f"{untrusted.quote(field)} cannot be a field: it is empty, or has a comma or a line break")
    untrusted.write_file(path, "".join(",".join(fields) + "\n" for fields in written))


def _format_time(milliseconds: float | None) -> tuple[str, ...]:
    return () if milliseconds is None else (f"{milliseconds:.6g}",)
