"""Export of old entries of the audit log to a file, and the check of files and store as one chain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import StoreError
from tunewright.service.audit_log import AUDIT_LOG, ChainEnd, ChainReport, check_chain, entry_name, read_record
from tunewright.stores import files, namespaces, serialization

EXPORTS = namespaces.AUDIT_EXPORTS.name
"""The namespace that says up to which entry the log was exported, so that its beginning can be checked without it."""


class _Export(msgspec.Struct, frozen=True):
    """The last entry of an export, and the file it went to."""

    number: int
    digest: str
    file: str


def export(store: Any, path: Path, *, keep: int) -> int:
    """Moves all but the newest `keep` entries to the end of a file, one per line; returns how many.

    The file is on the disk before an entry is removed. An export that was cut off is finished by the next one: entries
    that the file has already are not written again, and those that reached it in part are. The newest entry always
    stays, since the next one refers to it.
    """
    entries, exported = list(store.entries(AUDIT_LOG)), _exported(store)
    old = entries[: max(0, len(entries) - max(keep, 1))]
    if not old:
        return 0
    end, written = _read_file(path, exported)
    known = set(written)
    new = [body for body in _after(exported, old) if body not in known]
    report = check_chain(new, end)
    if report.problem:
        raise StoreError(
            f"the audit log is not exported to {path}: {report.problem}; "
            "see `tunewright service audit verify`, or name another file if this one has another log"
        )
    _append_lines(path, new, sum(len(line) + 1 for line in written))
    if report.end.number > exported.number:
        marker = _Export(report.end.number, report.end.digest, path.name)
        store.keep(EXPORTS, "last", serialization.encode(marker))
    store.drop_entries(AUDIT_LOG, [name for name, _ in old])
    return len(old)


def verify(store: Any, paths: Sequence[Path]) -> ChainReport:
    """Checks exported files, in this order, and the entries in the store as one chain."""
    report, exported = ChainReport(ChainEnd()), _exported(store)
    digests = {0: ""}
    for path in paths:
        lines = _read_lines(path)
        report = check_chain(lines, report.end)
        if report.problem and report.end.number < exported.number:  # later ones are still in the store
            return ChainReport(report.end, f"{path}: {report.problem}")
        digests |= {record.number: record.entry for line in lines if (record := read_record(line)) is not None}
    if paths and digests.get(exported.number) != exported.digest:
        problem = f"the files do not have entry {exported.number} as it was exported; give all of them, oldest first"
        return ChainReport(report.end, problem)
    return check_chain(_after(exported, store.entries(AUDIT_LOG)), exported)


def _after(exported: ChainEnd, entries: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """Returns entries without those that are in a file already: an export that was cut off leaves them in the store."""
    return [body for name, body in entries if name > entry_name(exported.number)]


def _exported(store: Any) -> ChainEnd:
    """Returns the last entry that was exported and removed."""
    body = store.fetch(EXPORTS, ["last"]).get("last")
    if body is None:
        return ChainEnd()
    marker = serialization.decode(body, _Export)
    return ChainEnd(marker.number, marker.digest)


def _read_file(path: Path, exported: ChainEnd) -> tuple[ChainEnd, list[bytes]]:
    """Returns the end of a file's chain and its lines up to there; `exported` and no lines if it has none."""
    lines = _read_lines(path)
    if not lines or (first := read_record(lines[0])) is None:
        return exported, []
    start = ChainEnd(first.number - 1, first.previous)
    end, problem = check_chain(lines, start)
    if end.number < exported.number:
        reason = problem or f"it ends with entry {end.number}, and the log was exported up to entry {exported.number}"
        raise StoreError(f"the audit log is not exported to {path}: {reason}; name another file")
    whole = lines[: end.number - start.number]
    return (end if whole else exported), whole


def _read_lines(path: Path) -> list[bytes]:
    """Returns the complete lines of a file."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}; name another file") from error


def _append_lines(path: Path, lines: Sequence[bytes], size: int) -> None:
    """Writes lines after the first `size` bytes, and waits until they are on the disk."""
    try:
        files.make_folder(path.parent, durable=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.truncate(size)
            file.seek(size)
            file.write(b"".join(line + b"\n" for line in lines))
        files.sync(path)
        files.sync(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}; nothing was removed from the store") from error
