"""Artifacts of a store, for the backends of a process that launches kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tunewright.ports.store import Store
from tunewright.stores import artifacts
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.cache_folder import CacheFolder
from tunewright.stores.capabilities import HasArtifacts
from tunewright.stores.seal import SEAL


class ArtifactProvider:
    """Copies artifacts of a store into the cache when a backend needs them, and counts compilations.

    A process that tunes nothing `adopts` the toolchain of the stored artifacts: they need no compiler, so the
    compiler that is installed does not matter.
    """

    def __init__(self, store: Callable[[], Store], folder: CacheFolder, counts: Counter[str], *, adopts: bool) -> None:
        self._store, self._folder, self._counts, self._adopts = store, folder, counts, adopts
        self._labels: Callable[[str], dict[str, ArtifactLabel]] = cache(self._read_labels)

    def _read_labels(self, kernel: str) -> dict[str, ArtifactLabel]:
        store = self._store()
        stored = store.artifact_labels(kernel) if isinstance(store, HasArtifacts) else ()
        return {label.name: label for label in (*artifacts.read_applied(self._folder.path, kernel), *stored)}

    def toolchains(self, kernel: str) -> Sequence[Mapping[str, str]]:
        """Returns the toolchains that built the artifacts of a kernel."""
        return [label.toolchain for label in self._labels(kernel).values()] if self._adopts else []

    def fetch(self, kernel: str, name: str) -> Path | None:
        """Copies the artifact called `name` from the store to the cache and returns its path; None if there is none."""
        kept = artifacts.artifact_path(self._folder.path, name)
        if self._folder.is_read_only and artifacts.is_intact(kept):
            return kept
        store = self._store()
        label = self._labels(kernel).get(name)
        content = store.read_attachment("build", name) if label and isinstance(store, HasArtifacts) else None
        return artifacts.unpack(self._folder.writable, content, label) if label and content is not None else None

    def contents(self, kernel: str, suffix: str, target: str) -> Iterator[bytes]:
        """Yields the artifacts of a kernel with a suffix and for a target, for backends that have their own cache."""
        store = self._store()
        for name, label in self._labels(kernel).items():
            if not name.endswith(suffix) or label.toolchain.get("target") != target:
                continue
            path = artifacts.artifact_path(self._folder.path, name)
            content = store.read_attachment("build", name) if isinstance(store, HasArtifacts) else None
            if content is None and (kept := artifacts.read_intact(path)) is not None:
                content = kept[0]
            if content is not None:
                yield content

    def before_compile(self, kernel: str) -> None:
        """Counts a compilation; raises if this process is sealed."""
        self._folder.warn()
        self._counts["compiles"] += 1
        SEAL.check("compiles", f"{kernel} was about to be compiled")
