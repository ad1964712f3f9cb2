"""Audit: tables of other tools, looked through without a device for what no look-up finds, or should not find."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tunewright.errors import WireError
from tunewright.interop import edge, triton_cache, tunableop
from tunewright.interop.findings import Asked, Fault, Finding, Page, Severity
from tunewright.interop.moe_audit import MoeAudit
from tunewright.interop.recording_audit import RecordingAudit, holds_recording
from tunewright.interop.triton_audit import TritonAudit
from tunewright.interop.tunableop_audit import TunableOpAudit

MOST_FILES = 200_000

_ENDINGS = (".json", ".csv", ".json.gz")

_OTHER = re.compile(r"N=\d+,K=\d+,.*device_name=")
"""Tables of plain products with blocks of scales: the same tools' and of the same make, but not looked through."""


@dataclass(frozen=True)
class Report:
    """What was looked through, what passed over, and what was found."""

    tables: int
    passed_over: tuple[str, ...]
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """How many findings are that severe."""
        return sum(finding.severity is severity for finding in self.findings)


class Auditor(Protocol):
    """Looks through the tables of one kind of tool."""

    def look(self, path: Path, page: Page) -> None:
        """Note what is wrong with one file."""

    def compare(self, folder: Page) -> None:
        """Note what is wrong with all of them together."""


def audited(place: Path, asked: Asked | None = None) -> Report:
    """Everything that is wrong with the tables in a folder, and in those below it; or in one file."""
    asked = asked or Asked()
    auditors: dict[str, Auditor] = {
        "moe": MoeAudit(asked),
        "recording": RecordingAudit(asked),
        "triton": TritonAudit(),
        "tunableop": TunableOpAudit(asked),
    }
    pages: list[Page] = []
    passed: list[str] = []
    for path in _files(place):
        page = Page(os.path.relpath(path, place) if place.is_dir() else path.name)
        if kind := _kind(path):
            auditors[kind].look(path, page)
            pages.append(page)
        else:
            passed.append(page.file)
    folder = Page(".")
    if not pages:
        folder.error(Fault.DAMAGED, "there is no table of a tool that we know", "name the folder that has them")
    for auditor in auditors.values():
        auditor.compare(folder)
    findings = tuple(finding for page in [folder, *pages] for finding in page.told())
    return Report(len(pages), tuple(passed), findings)


def _files(place: Path) -> Iterator[Path]:
    """The JSON and CSV files there, in order; links to folders are not followed."""
    if not place.is_dir():
        if not place.is_file():
            raise WireError(f"{place} is neither a folder nor a file")
        yield place
        return
    count = 0
    for folder, below, names in os.walk(place):
        below.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if name.endswith(_ENDINGS) and path.is_file():
                yield path
                count += 1
            if count > MOST_FILES:
                raise WireError(f"{place} has more than {MOST_FILES:,} files; name a folder in it")


def _kind(path: Path) -> str:
    """Whose table a file is: by its name, else by what it holds; nothing if we know nobody."""
    name = path.name.lower()
    if name.endswith(triton_cache.SUFFIX):
        return "triton"
    if path.suffix == ".csv":
        return "tunableop" if "untuned" not in name and _results(path) else ""
    if _OTHER.match(path.name):
        return ""
    if "device_name=" in name or re.match(r"e=\d", name) or _rows(path):
        return "moe"
    return "recording" if holds_recording(path) else ""


def _results(path: Path) -> bool:
    """Whether a CSV has what TunableOp writes; by its name, if it cannot be read."""
    try:
        lines = edge.lines(path)
    except WireError:
        return "tunableop" in path.name.lower()
    starts = tunableop.VALIDATOR + ","
    return "tunableop" in path.name.lower() or any(line.startswith(starts) or "TunableOp_" in line for line in lines)


def _rows(path: Path) -> bool:
    """Whether JSON by another name has rows of an MoE table."""
    try:
        content = edge.load_table(path)
    except WireError:
        return False
    return isinstance(content, dict) and any(
        isinstance(row, dict) and "BLOCK_SIZE_M" in row for row in content.values()
    )
