"""Audit of Kernel Tuner caches and T4 results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import kernel_tuner, t4, untrusted
from tunewright.interop.findings import AuditRequest, Fault, FileFindings
from tunewright.stores.fallback import normalize_device_name

_RETUNE = "tune it again, or get the file anew"
_CACHE, _RESULTS = "tune_params_keys", "results"
_HEAD = 10_000
"""Characters at the start that identify a cache, even if it is truncated."""


def is_recording(path: Path) -> bool:
    """Returns whether a file is a Kernel Tuner cache or has T4 results, complete or truncated."""
    if path.name.removesuffix(".gz").endswith("_T4.json"):
        return True
    with suppress(WireError):
        text = untrusted.read_text(path, untrusted.MAX_TABLE_BYTES)
        return f'"{_CACHE}"' in text[:_HEAD] or ('"configuration"' in text and f'"{_RESULTS}"' in text)
    return False


class RecordingAudit:
    """Checks recordings one by one, then devices with more than one spelling."""

    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._devices: dict[str, list[FileFindings]] = defaultdict(list)

    def check_file(self, path: Path, page: FileFindings) -> None:
        """Add findings of the recording at `path`."""
        notes: list[str] = []
        try:
            repeated: list[str] = []
            content = untrusted.check_object(
                untrusted.load_table(path, repeated, partial(kernel_tuner.repair_truncated, notes)), "the file"
            )
            _check_repeated(repeated, page)
            if _RESULTS in content:
                _check_t4(content, path, page)
            else:
                self._devices[str(content.get("device_name", ""))].append(page)
                _check_cache(content, page)
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), _RETUNE)
        else:
            for note in notes:
                page.warn(Fault.DAMAGED, note, "let the run that writes it end, or go on from it")

    def check_all(self, folder: FileFindings) -> None:
        """Add findings of caches that Kernel Tuner rejects because of the spelling of their device."""
        spellings: dict[str, list[str]] = defaultdict(list)
        for name in self._devices:
            spellings[normalize_device_name(name)].append(name)
        wanted = self._request.device
        for plain, names in spellings.items():
            usual = max(names, key=lambda name: (len(self._devices[name]), name))
            here = wanted if wanted and plain == normalize_device_name(wanted) else ""
            for name in names:
                for page in self._devices[name]:
                    if here and name != here:
                        wrong = f"Kernel Tuner stops at a cache of {untrusted.quote(name)} on {untrusted.quote(here)}"
                        page.error(Fault.UNREACHABLE, wrong, "write the device as its driver spells it")
                    elif not here and name != usual:
                        wrong = (
                            f"{untrusted.quote(name)} and {untrusted.quote(usual)} seem to be one device; "
                            f"one name is right"
                        )
                        page.warn(Fault.ALIAS, wrong, "see what the driver calls it, and correct the others")


def _check_repeated(names: Iterable[str], page: FileFindings) -> None:
    for name in dict.fromkeys(names):
        page.error(
            Fault.COLLISION, f"{untrusted.quote(name)} is there twice; the last one counts", "keep one of them", name
        )


def _check_version(content: Mapping[str, Any], page: FileFindings) -> None:
    said = content.get("schema_version", t4.SCHEMA)
    if not isinstance(said, str) or said.partition(".")[0] != t4.SCHEMA.partition(".")[0]:
        wrong = f"it is of schema {untrusted.quote(said)}, and {t4.SCHEMA} is the one that is known"
        page.warn(Fault.VERSION, wrong, "see what changed, or convert it")


def _check_cache(content: dict[str, Any], page: FileFindings) -> None:
    _check_version(content, page)
    names = [str(name) for name in untrusted.check_array(content.get(_CACHE), _CACHE, untrusted.MAX_KNOBS)]
    said = content.get("tune_params")
    offered: dict[str, Any] = said if isinstance(said, dict) else {}
    found = len(page.findings)
    for key, entry in untrusted.check_object(content.get("cache"), "the cache").items():
        if isinstance(entry, dict) and all(name in entry for name in names):
            _check_entry(key, {name: entry[name] for name in names}, offered, page)
            _check_time(entry.get("__error__", entry.get("time")), page, key)
    if len(page.findings) == found:  # what is still wrong is what the reader stops at
        kernel_tuner.parse(content, "the file")


def _check_entry(key: str, settings: dict[str, Any], offered: Mapping[str, Any], page: FileFindings) -> None:
    """Add findings of an entry stored under another config, or under one that is never tried."""
    if key != ",".join(map(str, settings.values())):
        wrong = "it is not kept under its own settings, so a look-up finds it for another config or never"
        page.error(Fault.UNREACHABLE, wrong, "remove the entry; it is measured again", key)
    for name, value in settings.items():
        if isinstance(listed := offered.get(name), list) and value not in listed:
            wrong = f"{name} is {untrusted.quote(value)}, which its parameter does not offer"
            page.error(Fault.UNREACHABLE, wrong, "add it to the parameter's values, or remove the entry", key)


def _check_time(said: Any, page: FileFindings, row: str) -> None:
    number = isinstance(said, int | float) and not isinstance(said, bool)
    if number and isfinite(said if isinstance(said, float) else 0.0) and said <= 0:
        page.error(Fault.VALUE, "no kernel takes no time", "remove it; it is measured again", row)


def _check_t4(content: dict[str, Any], path: Path, page: FileFindings) -> None:
    _check_version(content, page)
    found = len(page.findings)
    seen: dict[str, tuple[int, str]] = {}
    for number, result in enumerate(untrusted.check_array(content[_RESULTS], _RESULTS)):
        if not isinstance(result, dict):
            continue
        row, time = f"result {number}", next(_recorded_times(result), None)
        first, taken = seen.setdefault(
            untrusted.compact(result.get("configuration")), (number, untrusted.compact(time))
        )
        if taken != untrusted.compact(time):
            wrong = f"result {first} is of the same config, with another time; the first one counts"
            page.error(Fault.COLLISION, wrong, "keep one of them", row)
        if result.get("correctness", 1) == 0 and result.get("invalidity", "correctness") == "correct":
            page.error(Fault.VALUE, "it is called correct, and its results wrong", "see which it is", row)
        _check_time(time, page, row)
    if len(page.findings) == found:
        t4.parse(content, "the file", t4.names_from_path(path))


def _recorded_times(result: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the recorded times of a result."""
    measured = result.get("measurements")
    for measurement in measured if isinstance(measured, list) else ():
        if isinstance(measurement, dict) and measurement.get("name") == "time":
            yield measurement.get("value")
