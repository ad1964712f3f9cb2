"""Supply: what a process that launches lends its backends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tunewright.ports.store import Store
from tunewright.sharing import artefacts
from tunewright.sharing.offers import Brings
from tunewright.sharing.sealing import SEAL


class Lender:
    """Builds from a store, put into the cache when they are asked for; and a count of what is compiled.

    Where nothing is tuned it `adopts` the toolchain of what is brought: code that is built needs no compiler, and which
    one is found here does not matter.
    """

    def __init__(self, store: Callable[[], Store], folder: Path, counts: Counter[str], *, adopts: bool) -> None:
        self._store, self._folder, self._counts, self._adopts = store, folder, counts, adopts
        self._labels: Callable[[str], dict[str, artefacts.Label]] = cache(self._labelled)

    def _labelled(self, kernel: str) -> dict[str, artefacts.Label]:
        store = self._store()
        brought = store.builds(kernel) if isinstance(store, Brings) else ()
        return {label.name: label for label in (*artefacts.applied(self._folder, kernel), *brought)}

    def toolchains(self, kernel: str) -> Sequence[Mapping[str, str]]:
        """What built what is brought for a kernel."""
        return [label.toolchain for label in self._labels(kernel).values()] if self._adopts else []

    def brought(self, kernel: str, name: str) -> Path | None:
        """The artefact called `name`, put into the cache, if the store brings it."""
        store = self._store()
        label = self._labels(kernel).get(name)
        content = store.enclosed("build", name) if label and isinstance(store, Brings) else None
        return artefacts.unpack(self._folder, content, label) if label and content is not None else None

    def contents(self, kernel: str, suffix: str, target: str) -> Iterator[bytes]:
        """What is brought of one kind for a kernel and a target, for those who keep it elsewhere than in our cache."""
        store = self._store()
        for name, label in self._labels(kernel).items():
            if not name.endswith(suffix) or label.toolchain.get("target") != target:
                continue
            unpacked = artefacts.place(self._folder, name)
            body = store.enclosed("build", name) if isinstance(store, Brings) else None
            if body is None and unpacked.is_file():
                body = unpacked.read_bytes()
            if body is not None:
                yield body

    def compiling(self, kernel: str) -> None:
        """Count it; refuse it where this process is sealed."""
        self._counts["compiles"] += 1
        SEAL.note("compiles", f"{kernel} was about to be compiled")
