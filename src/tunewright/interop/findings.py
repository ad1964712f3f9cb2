"""Findings: what is wrong with tables of other tools, and what they are asked for."""

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
from tunewright.interop import edge

MOST_SHAPES = 100_000

TRITON = "triton"
"""The version that MoE tables are tuned with; all other versions are PyTorch's to check."""


class Severity(StrEnum):
    """An error is a row that is never found, or does harm when it is; a warning costs speed."""

    ERROR = "error"
    WARNING = "warning"


class Fault(StrEnum):
    """What kind of thing is wrong."""

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
    """One thing that is wrong: in which file and row, what, and what to do about it."""

    file: str
    row: str
    severity: Severity
    fault: Fault
    wrong: str
    remedy: str


@dataclass
class Page:
    """What is found in one file, which everyone who looks into it adds to."""

    file: str
    findings: list[Finding] = field(default_factory=list)

    def error(self, fault: Fault, wrong: str, remedy: str, row: str = "") -> None:
        """Note what makes a row useless or harmful."""
        self._note(Severity.ERROR, fault, (wrong, remedy, row))

    def warn(self, fault: Fault, wrong: str, remedy: str, row: str = "") -> None:
        """Note what costs speed."""
        self._note(Severity.WARNING, fault, (wrong, remedy, row))

    def _note(self, severity: Severity, fault: Fault, said: tuple[str, str, str]) -> None:
        wrong, remedy, row = map(printable, said)
        self.findings.append(Finding(printable(self.file), row, severity, fault, wrong, remedy))

    def told(self) -> Iterator[Finding]:
        """What is found, each thing once: the first row that has it, and how many more."""
        alike: dict[Finding, list[str]] = {}
        for finding in self.findings:
            alike.setdefault(replace(finding, row=""), []).append(finding.row)
        for finding, rows in alike.items():
            yield replace(finding, row=rows[0] + (f" and {len(rows) - 1} more" if len(rows) > 1 else ""))

    def has(self, fault: Fault) -> bool:
        """Whether such a thing is noted already."""
        return any(finding.fault is fault for finding in self.findings)


def printable(text: str) -> str:
    """A foreign text without anything that a terminal obeys."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class Shape:
    """Something that will be asked for: sizes by name, or a product as TunableOp names it."""

    dims: Mapping[str, int] = field(default_factory=dict)
    call: tuple[str, str] | None = None


@dataclass(frozen=True)
class Asked:
    """What tables are judged by: the shapes, the device and the versions that they are to serve."""

    shapes: tuple[Shape, ...] = ()
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def shapes_of(text: str) -> Iterator[Shape]:
    """The shapes that a text such as `512` or `E=8,N=14336,M=1,2,4` lists: all combinations."""
    sizes: dict[str, list[int]] = {}
    name = "M"
    for part in text.split(","):
        before, equals, size = part.rpartition("=")
        name = before.strip() if equals else name
        if re.fullmatch(r"\s*[0-9]{1,18}\s*", size, re.ASCII) is None or not name.isidentifier():
            raise WireError(f"{edge.shown(text)} is no list of shapes; write M=1,2,4 or E=8,N=14336,M=1,2,4")
        sizes.setdefault(name, []).append(int(size))
    if prod(map(len, sizes.values())) > MOST_SHAPES:
        raise WireError(f"{edge.shown(text)} stands for more than {MOST_SHAPES:,} shapes; list fewer")
    for combination in product(*sizes.values()):
        yield Shape(dict(zip(sizes, combination, strict=True)))


def shapes_in(path: Path) -> tuple[Shape, ...]:
    """The shapes in a file.

    It is JSON (numbers, objects of sizes, or what `tunewright store untuned --json` says), or lines: shapes as they
    are typed, or products that PyTorch recorded as untuned.
    """
    found = _listed(path) if path.suffix == ".json" else _traced(path)
    shapes = tuple(islice(found, MOST_SHAPES + 1))
    if len(shapes) > MOST_SHAPES:
        raise WireError(f"{path} has more than {MOST_SHAPES:,} shapes; take those that matter most")
    return shapes


def _listed(path: Path) -> Iterator[Shape]:
    for number, said in enumerate(edge.sequence(edge.load_table(path), str(path))):
        at = f"{path}: shape {number}"
        dims = _inside(said) if isinstance(said, dict) else {"M": said}
        if not dims or not all(type(size) is int and size >= 0 for size in dims.values()):
            raise WireError(f"{at} should be a number, or an object of sizes, not {edge.shown(said)}")
        yield Shape(dims)


def _inside(said: dict[str, Any]) -> dict[str, Any]:
    """Sizes by name: those an object holds, or those of the key in it."""
    for part in ("key", "signature", "dims"):
        said = inner if isinstance(inner := said.get(part), dict) else said
    return said


def _traced(path: Path) -> Iterator[Shape]:
    for line in edge.lines(path):
        text = line.strip()
        if "TunableOp_" in text:
            op, _, rest = text.partition(",")
            yield Shape(call=(op, rest.partition(",")[0]))
        elif text and not text.startswith("#"):
            yield from shapes_of(text)
