"""Audit of tables of other tools, without a device: rows that no look-up finds, or that do harm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tunewright.errors import WireError
from tunewright.interop import triton_cache, tunableop, untrusted
from tunewright.interop.findings import AuditRequest, Fault, FileFindings, Finding, Severity
from tunewright.interop.moe_audit import MoeAudit
from tunewright.interop.recording_audit import RecordingAudit, is_recording
from tunewright.interop.triton_audit import TritonAudit
from tunewright.interop.tunableop_audit import TunableOpAudit

MAX_FILES = 200_000

_SUFFIXES = (".json", ".csv", ".json.gz")

_UNSUPPORTED = re.compile(r"N=\d+,K=\d+,.*device_name=")
"""Tables of block-scaled GEMMs of the same tools, which are not audited."""


@dataclass(frozen=True)
class AuditReport:
    """Number of tables audited, files skipped, and findings."""

    tables: int
    passed_over: tuple[str, ...]
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """Returns the number of findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)


class Auditor(Protocol):
    """Audits the tables of one tool."""

    def check_file(self, path: Path, page: FileFindings) -> None:
        """Add findings of one file."""

    def check_all(self, folder: FileFindings) -> None:
        """Add findings of all files together."""


def audit_tables(root: Path, request: AuditRequest | None = None) -> AuditReport:
    """Returns the findings in the tables of a folder, recursively, or of one file."""
    request = request or AuditRequest()
    auditors: dict[str, Auditor] = {
        "moe": MoeAudit(request),
        "recording": RecordingAudit(request),
        "triton": TritonAudit(),
        "tunableop": TunableOpAudit(request),
    }
    pages: list[FileFindings] = []
    skipped: list[str] = []
    for path in _files(root):
        page = FileFindings(os.path.relpath(path, root) if root.is_dir() else path.name)
        if kind := _table_kind(path):
            auditors[kind].check_file(path, page)
            pages.append(page)
        else:
            skipped.append(page.file)
    folder = FileFindings(".")
    if not pages:
        folder.error(Fault.DAMAGED, "there is no table of a supported tool", "name the folder that has them")
    for auditor in auditors.values():
        auditor.check_all(folder)
    findings = tuple(finding for page in [folder, *pages] for finding in page.merged())
    return AuditReport(len(pages), tuple(skipped), findings)


def _files(root: Path) -> Iterator[Path]:
    """Yields the JSON and CSV files, sorted; links to folders are not followed."""
    if not root.is_dir():
        if not root.is_file():
            raise WireError(f"{root} is neither a folder nor a file")
        yield root
        return
    count = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if name.endswith(_SUFFIXES) and path.is_file():
                yield path
                count += 1
            if count > MAX_FILES:
                raise WireError(f"{root} has more than {MAX_FILES:,} files; name a folder in it")


def _table_kind(path: Path) -> str:
    """Returns the kind of a table, by its name or its content; "" if unknown."""
    name = path.name.lower()
    if name.endswith(triton_cache.SUFFIX):
        return "triton"
    if path.suffix == ".csv":
        return "tunableop" if "untuned" not in name and _is_tunableop(path) else ""
    if _UNSUPPORTED.match(path.name):
        return ""
    if "device_name=" in name or re.match(r"e=\d", name) or _is_moe_table(path):
        return "moe"
    return "recording" if is_recording(path) else ""


def _is_tunableop(path: Path) -> bool:
    """Returns whether a CSV has TunableOp results; by its name, if it cannot be read."""
    try:
        lines = untrusted.read_lines(path)
    except WireError:
        return "tunableop" in path.name.lower()
    starts = tunableop.VALIDATOR + ","
    return "tunableop" in path.name.lower() or any(line.startswith(starts) or "TunableOp_" in line for line in lines)


def _is_moe_table(path: Path) -> bool:
    """Returns whether JSON has rows of an MoE table."""
    try:
        content = untrusted.load_table(path)
    except WireError:
        return False
    return isinstance(content, dict) and any(
        isinstance(row, dict) and "BLOCK_SIZE_M" in row for row in content.values()
    )
