"""Recording audit: what is wrong with caches of Kernel Tuner, and with T4 results that are to be replayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge, kernel_tuner, t4
from tunewright.interop.findings import Asked, Fault, Page
from tunewright.sharing.nearby import plain_name

_ANEW = "tune it again, or get the file anew"
_CACHE, _RESULTS = "tune_params_keys", "results"
_HEAD = 10_000
"""Characters in which a cache says what it is, even if its end is missing."""


def holds_recording(path: Path) -> bool:
    """Whether a file is a cache of Kernel Tuner or has T4 results, be they whole or cut off."""
    if path.name.removesuffix(".gz").endswith("_T4.json"):
        return True
    with suppress(WireError):
        text = edge.text(path, edge.MOST_TABLE_BYTES)
        return f'"{_CACHE}"' in text[:_HEAD] or ('"configuration"' in text and f'"{_RESULTS}"' in text)
    return False


class RecordingAudit:
    """Looks through recordings one by one, then for devices that are spelt in more than one way."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._devices: dict[str, list[Page]] = defaultdict(list)

    def look(self, path: Path, page: Page) -> None:
        """Note what is wrong with the recording at `path`."""
        notes: list[str] = []
        try:
            repeated: list[str] = []
            content = edge.mapping(edge.load_table(path, repeated, partial(kernel_tuner.closed, notes)), "the file")
            _repeated(repeated, page)
            if _RESULTS in content:
                _t4(content, path, page)
            else:
                self._devices[str(content.get("device_name", ""))].append(page)
                _cache(content, page)
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), _ANEW)
        else:
            for note in notes:
                page.warn(Fault.DAMAGED, note, "let the run that writes it end, or go on from it")

    def compare(self, folder: Page) -> None:
        """Note caches that Kernel Tuner refuses since their device is spelt otherwise."""
        spelt: dict[str, list[str]] = defaultdict(list)
        for name in self._devices:
            spelt[plain_name(name)].append(name)
        wanted = self._asked.device
        for plain, names in spelt.items():
            usual = max(names, key=lambda name: (len(self._devices[name]), name))
            here = wanted if wanted and plain == plain_name(wanted) else ""
            for name in names:
                for page in self._devices[name]:
                    if here and name != here:
                        wrong = f"Kernel Tuner stops at a cache of {edge.shown(name)} on {edge.shown(here)}"
                        page.error(Fault.UNREACHABLE, wrong, "write the device as its driver spells it")
                    elif not here and name != usual:
                        wrong = f"{edge.shown(name)} and {edge.shown(usual)} seem to be one device; one name is right"
                        page.warn(Fault.ALIAS, wrong, "see what the driver calls it, and correct the others")


def _repeated(names: Iterable[str], page: Page) -> None:
    for name in dict.fromkeys(names):
        page.error(Fault.COLLISION, f"{edge.shown(name)} is there twice; the last one counts", "keep one of them", name)


def _version(content: Mapping[str, Any], page: Page) -> None:
    said = content.get("schema_version", t4.SCHEMA)
    if not isinstance(said, str) or said.partition(".")[0] != t4.SCHEMA.partition(".")[0]:
        wrong = f"it is of schema {edge.shown(said)}, and {t4.SCHEMA} is the one that is known"
        page.warn(Fault.VERSION, wrong, "see what changed, or convert it")


def _cache(content: dict[str, Any], page: Page) -> None:
    _version(content, page)
    names = [str(name) for name in edge.sequence(content.get(_CACHE), _CACHE, edge.MOST_KNOBS)]
    said = content.get("tune_params")
    offered: dict[str, Any] = said if isinstance(said, dict) else {}
    found = len(page.findings)
    for key, entry in edge.mapping(content.get("cache"), "the cache").items():
        if isinstance(entry, dict) and all(name in entry for name in names):
            _entry(key, {name: entry[name] for name in names}, offered, page)
            _time(entry.get("__error__", entry.get("time")), page, key)
    if len(page.findings) == found:  # what is still wrong is what the reader stops at
        kernel_tuner.told(content, "the file")


def _entry(key: str, settings: dict[str, Any], offered: Mapping[str, Any], page: Page) -> None:
    """Note an entry that is kept under the name of another config, or of one that is never tried."""
    if key != ",".join(map(str, settings.values())):
        wrong = "it is not kept under its own settings, so a look-up finds it for another config or never"
        page.error(Fault.UNREACHABLE, wrong, "remove the entry; it is measured again", key)
    for name, value in settings.items():
        if isinstance(listed := offered.get(name), list) and value not in listed:
            wrong = f"{name} is {edge.shown(value)}, which its parameter does not offer"
            page.error(Fault.UNREACHABLE, wrong, "add it to the parameter's values, or remove the entry", key)


def _time(said: Any, page: Page, row: str) -> None:
    number = isinstance(said, int | float) and not isinstance(said, bool)
    if number and isfinite(said if isinstance(said, float) else 0.0) and said <= 0:
        page.error(Fault.VALUE, "no kernel takes no time", "remove it; it is measured again", row)


def _t4(content: dict[str, Any], path: Path, page: Page) -> None:
    _version(content, page)
    found = len(page.findings)
    seen: dict[str, tuple[int, str]] = {}
    for number, result in enumerate(edge.sequence(content[_RESULTS], _RESULTS)):
        if not isinstance(result, dict):
            continue
        row, time = f"result {number}", next(_times(result), None)
        first, taken = seen.setdefault(edge.compact(result.get("configuration")), (number, edge.compact(time)))
        if taken != edge.compact(time):
            wrong = f"result {first} is of the same config, with another time; the first one counts"
            page.error(Fault.COLLISION, wrong, "keep one of them", row)
        if result.get("correctness", 1) == 0 and result.get("invalidity", "correctness") == "correct":
            page.error(Fault.VALUE, "it is called correct, and its results wrong", "see which it is", row)
        _time(time, page, row)
    if len(page.findings) == found:
        t4.told(content, "the file", t4.names_in(path))


def _times(result: Mapping[str, Any]) -> Iterator[Any]:
    """The times a result says it took."""
    measured = result.get("measurements")
    for one in measured if isinstance(measured, list) else ():
        if isinstance(one, dict) and one.get("name") == "time":
            yield one.get("value")
