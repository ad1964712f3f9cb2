"""Audit of files of Triton's autotuning cache."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import triton_cache, untrusted
from tunewright.interop.findings import Fault, FileFindings
from tunewright.interop.launches import launch_problems
from tunewright.interop.triton_cache import FIELDS, LAUNCH, MAX_NAME_CHARS, AutotuneFile, TimedConfig

_RETUNE = "remove the file; Triton tunes again"


@dataclass
class CheckedFile:
    """A file and its findings."""

    cache: AutotuneFile
    page: FileFindings


class TritonAudit:
    """Checks files one by one, then for different winners of the same key.

    The files have neither a device nor a version, which are in the digest of their folder, and sizes only in a key
    without names; so they cannot be checked against a request.
    """

    def __init__(self) -> None:
        self._files: list[CheckedFile] = []

    def check_file(self, path: Path, page: FileFindings) -> None:
        """Add findings of the file at `path`."""
        if file := _check_file(path, page):
            self._files.append(file)

    def check_all(self, folder: FileFindings) -> None:
        """Add findings of files with equal kernel, key and configs but another winner: at most one is current."""
        first_by_question: dict[object, CheckedFile] = {}
        for file in self._files:
            question = file.cache.kernel, file.cache.key, frozenset(timed.config for timed in file.cache.tried)
            first = first_by_question.setdefault(question, file)
            if first.cache.best.config != file.cache.best.config:
                wrong = f"{first.page.file} has the same kernel, key and configs, and another winner; one may be stale"
                file.page.warn(Fault.COLLISION, wrong, "remove what older toolchains left, or race the two")


def _check_file(path: Path, page: FileFindings) -> CheckedFile | None:
    kernel = triton_cache.kernel_name(path)
    if not triton_cache.is_reachable(path):
        wrong = "it lies in no folder that Triton names by a digest, so no look-up finds it"
        page.warn(Fault.UNREACHABLE, wrong, "leave it where Triton put it")
    if not kernel.isidentifier() or len(kernel) > MAX_NAME_CHARS:
        page.error(
            Fault.UNREACHABLE, f"{untrusted.quote(kernel)} is no kernel's name, so no look-up asks for it", _RETUNE
        )
    repeated: list[str] = []
    try:
        content = untrusted.load_table(path, repeated)
        cache = triton_cache.parse(content, kernel, "the file")
    except WireError as error:
        page.error(Fault.DAMAGED, str(error), _RETUNE)
        return None
    for name in dict.fromkeys(repeated):
        page.error(Fault.COLLISION, f"{untrusted.quote(name)} is there twice; the last one counts", _RETUNE, name)
    _check_entries(content, page)
    if cache.best.milliseconds[0] == inf:
        page.error(Fault.VALUE, "no config worked, and Triton takes the first all the same", "give it configs that fit")
    return CheckedFile(cache, page)


def _check_entries(content: dict[str, object], page: FileFindings) -> None:
    seen: dict[object, int] = {}
    for number, (said, timed) in enumerate(triton_cache.entries(content, "the file")):
        row = f"config {number}"
        if unknown := sorted(said.keys() - FIELDS):
            named = ", ".join(map(untrusted.quote, unknown))
            page.warn(Fault.VALUE, f"a config of Triton today takes no {named}, and it stops at that", _RETUNE, row)
        if said.get("pre_hook") is not None:
            page.error(Fault.VALUE, "a pre_hook is code, and cannot come from a file", _RETUNE, row)
        first = seen.setdefault(timed.config, number)
        if first != number:
            page.error(Fault.COLLISION, f"config {first} is the same; the last one's times count", _RETUNE, row)
        _check_times(timed, page, row)


def _check_times(timed: TimedConfig, page: FileFindings, row: str) -> None:
    """Add findings of impossible configs and times."""
    times = timed.milliseconds
    if times[0] == inf:
        return
    for wrong in launch_problems({name: timed.config[name] for name in LAUNCH if name in timed.config}):
        page.error(Fault.VALUE, f"it has a time, but {wrong}", _RETUNE, row)
    for name, value in timed.config.items():
        if name.startswith("BLOCK") and type(value) is int and value < 1:
            page.error(Fault.VALUE, f"it has a time, but {name} is {value}", _RETUNE, row)
    if times[0] <= 0:
        page.error(Fault.VALUE, "no kernel takes no time", _RETUNE, row)
    elif len(times) == 3 and not times[1] <= times[0] <= times[2]:
        page.warn(Fault.VALUE, "its median is not between its fast and its slow time", _RETUNE, row)
