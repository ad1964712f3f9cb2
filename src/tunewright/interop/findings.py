"""Findings in tables of other tools, and the shapes that the tables should serve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import untrusted

MAX_SHAPES = 100_000

TRITON = "triton"
"""Name of the version that MoE tables depend on; all other versions are validators of PyTorch."""


class Severity(StrEnum):
    """An error makes a row unreachable or harmful; a warning costs speed."""

    ERROR = "error"
    WARNING = "warning"


class Fault(StrEnum):
    """Kind of a finding."""

    DAMAGED = "damaged"
    UNREACHABLE = "unreachable"
    COLLISION = "collision"
    ALIAS = "alias"
    GAP = "gap"
    CLIFF = "cliff"
    FAR = "far"
    UNTUNED = "untuned"
    VERSION = "version"
    VALUE = "value"


@dataclass(frozen=True)
class Finding:
    """A problem: the file and row, what is wrong, and what to do."""

    file: str
    row: str
    severity: Severity
    fault: Fault
    wrong: str
    remedy: str


@dataclass
class FileFindings:
    """Findings in one file."""

    file: str
    findings: list[Finding] = field(default_factory=list)

    def error(self, fault: Fault, wrong: str, remedy: str, row: str = "") -> None:
        """Add an error."""
        self._add(Severity.ERROR, fault, (wrong, remedy, row))

    def warn(self, fault: Fault, wrong: str, remedy: str, row: str = "") -> None:
        """Add a warning."""
        self._add(Severity.WARNING, fault, (wrong, remedy, row))

    def _add(self, severity: Severity, fault: Fault, texts: tuple[str, str, str]) -> None:
        wrong, remedy, row = map(printable, texts)
        self.findings.append(Finding(printable(self.file), row, severity, fault, wrong, remedy))

    def merged(self) -> Iterator[Finding]:
        """Yields each distinct finding once, with its first row and the number of further rows."""
        rows_by_finding: dict[Finding, list[str]] = {}
        for finding in self.findings:
            rows_by_finding.setdefault(replace(finding, row=""), []).append(finding.row)
        for finding, rows in rows_by_finding.items():
            yield replace(finding, row=rows[0] + (f" and {len(rows) - 1} more" if len(rows) > 1 else ""))

    def has(self, fault: Fault) -> bool:
        """Returns whether there is a finding of this kind."""
        return any(finding.fault is fault for finding in self.findings)


def printable(text: str) -> str:
    """Returns a foreign text without control characters."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@dataclass(frozen=True)
class RequestedShape:
    """A shape that will be looked up: sizes by name, or a GEMM as TunableOp names it."""

    dims: Mapping[str, int] = field(default_factory=dict)
    call: tuple[str, str] | None = None


@dataclass(frozen=True)
class AuditRequest:
    """What tables are audited for: shapes, device and versions."""

    shapes: tuple[RequestedShape, ...] = ()
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def parse_shapes(text: str) -> Iterator[RequestedShape]:
    """Yields all combinations of sizes in a text such as `512` or `E=8,N=14336,M=1,2,4`."""
    sizes: dict[str, list[int]] = {}
    name = "M"
    for part in text.split(","):
        before, equals, size = part.rpartition("=")
        name = before.strip() if equals else name
        if re.fullmatch(r"\s*[0-9]{1,18}\s*", size, re.ASCII) is None or not name.isidentifier():
            raise WireError(f"{untrusted.quote(text)} is not a list of shapes; write M=1,2,4 or E=8,N=14336,M=1,2,4")
        sizes.setdefault(name, []).append(int(size))
    if prod(map(len, sizes.values())) > MAX_SHAPES:
        raise WireError(f"{untrusted.quote(text)} has more than {MAX_SHAPES:,} shapes; list fewer")
    for combination in product(*sizes.values()):
        yield RequestedShape(dict(zip(sizes, combination, strict=True)))


def read_shapes(path: Path) -> tuple[RequestedShape, ...]:
    """Returns the shapes in a file.

    It is JSON (numbers, objects of sizes, or the output of `tunewright store untuned --json`), or lines: shapes as on
    the command line, or GEMMs that PyTorch recorded as untuned.
    """
    parsed = _json_shapes(path) if path.suffix == ".json" else _line_shapes(path)
    shapes = tuple(islice(parsed, MAX_SHAPES + 1))
    if len(shapes) > MAX_SHAPES:
        raise WireError(f"{path} has more than {MAX_SHAPES:,} shapes; list the important ones")
    return shapes


def _json_shapes(path: Path) -> Iterator[RequestedShape]:
    for number, entry in enumerate(untrusted.check_array(untrusted.load_table(path), str(path))):
        at = f"{path}: shape {number}"
        dims = _find_dims(entry) if isinstance(entry, dict) else {"M": entry}
        if not dims or not all(type(size) is int and size >= 0 for size in dims.values()):
            raise WireError(f"{at} should be a number or an object of sizes, not {untrusted.quote(entry)}")
        yield RequestedShape(dims)


def _find_dims(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the sizes in an object, or in the key that it has."""
    for part in ("key", "signature", "dims"):
        entry = inner if isinstance(inner := entry.get(part), dict) else entry
    return entry


def _line_shapes(path: Path) -> Iterator[RequestedShape]:
    for line in untrusted.read_lines(path):
        text = line.strip()
        if "TunableOp_" in text:
            op, _, rest = text.partition(",")
            yield RequestedShape(call=(op, rest.partition(",")[0]))
        elif text and not text.startswith("#"):
            yield from parse_shapes(text)
