"""Triton audit: what is wrong with files of Triton's autotuning cache."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import edge, triton_cache
from tunewright.interop.findings import Fault, Page
from tunewright.interop.launches import impossible
from tunewright.interop.triton_cache import FIELDS, LAUNCH, MOST_LETTERS, Autotuned, Timed

_ANEW = "remove the file; Triton tunes again"


@dataclass
class Leaf:
    """A file as it was found, and what is noted of it."""

    cache: Autotuned
    page: Page


class TritonAudit:
    """Looks through files one by one, then for those that answer one question differently.

    They name neither a device nor a version, which the digest of their folder stands for, and no size but in a key
    whose parts have no names; so what is asked for says nothing of them.
    """

    def __init__(self) -> None:
        self._leaves: list[Leaf] = []

    def look(self, path: Path, page: Page) -> None:
        """Note what is wrong with the file at `path`."""
        if leaf := _leaf(path, page):
            self._leaves.append(leaf)

    def compare(self, folder: Page) -> None:
        """Note files with one kernel, key and configs, but another winner: at most one is of the toolchain in use."""
        asked: dict[object, Leaf] = {}
        for leaf in self._leaves:
            question = leaf.cache.kernel, leaf.cache.key, frozenset(timed.config for timed in leaf.cache.tried)
            first = asked.setdefault(question, leaf)
            if first.cache.best.config != leaf.cache.best.config:
                wrong = f"{first.page.file} has the same kernel, key and configs, and another winner; one may be stale"
                leaf.page.warn(Fault.COLLISION, wrong, "remove what older toolchains left, or race the two")


def _leaf(path: Path, page: Page) -> Leaf | None:
    kernel = triton_cache.kernel_of(path)
    if not triton_cache.reachable(path):
        wrong = "it lies in no folder that Triton names by a digest, so no look-up finds it"
        page.warn(Fault.UNREACHABLE, wrong, "leave it where Triton put it")
    if not kernel.isidentifier() or len(kernel) > MOST_LETTERS:
        page.error(Fault.UNREACHABLE, f"{edge.shown(kernel)} is no kernel's name, so no look-up asks for it", _ANEW)
    repeated: list[str] = []
    try:
        content = edge.load_table(path, repeated)
        cache = triton_cache.told(content, kernel, "the file")
    except WireError as error:
        page.error(Fault.DAMAGED, str(error), _ANEW)
        return None
    for name in dict.fromkeys(repeated):
        page.error(Fault.COLLISION, f"{edge.shown(name)} is there twice; the last one counts", _ANEW, name)
    _entries(content, page)
    if cache.best.milliseconds[0] == inf:
        page.error(Fault.VALUE, "no config worked, and Triton takes the first all the same", "give it configs that fit")
    return Leaf(cache, page)


def _entries(content: dict[str, object], page: Page) -> None:
    seen: dict[object, int] = {}
    for number, (said, timed) in enumerate(triton_cache.entries(content, "the file")):
        row = f"config {number}"
        if unknown := sorted(said.keys() - FIELDS):
            named = ", ".join(map(edge.shown, unknown))
            page.warn(Fault.VALUE, f"a config of Triton today takes no {named}, and it stops at that", _ANEW, row)
        if said.get("pre_hook") is not None:
            page.error(Fault.VALUE, "a pre_hook is code, and cannot come from a file", _ANEW, row)
        first = seen.setdefault(timed.config, number)
        if first != number:
            page.error(Fault.COLLISION, f"config {first} is the same; the last one's times count", _ANEW, row)
        _times(timed, page, row)


def _times(timed: Timed, page: Page, row: str) -> None:
    """Note what cannot be: that something ran which no device can run, or in no time."""
    times = timed.milliseconds
    if times[0] == inf:
        return
    for wrong in impossible({name: timed.config[name] for name in LAUNCH if name in timed.config}):
        page.error(Fault.VALUE, f"it has a time, but {wrong}", _ANEW, row)
    for name, value in timed.config.items():
        if name.startswith("BLOCK") and type(value) is int and value < 1:
            page.error(Fault.VALUE, f"it has a time, but {name} is {value}", _ANEW, row)
    if times[0] <= 0:
        page.error(Fault.VALUE, "no kernel takes no time", _ANEW, row)
    elif len(times) == 3 and not times[1] <= times[0] <= times[2]:
        page.warn(Fault.VALUE, "its median is not between its fast and its slow time", _ANEW, row)
