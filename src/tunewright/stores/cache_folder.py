"""The cache of a process: its folder, or a temporary one where that cannot be written, as in a read-only home."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)


class CacheFolder:
    """The folder `path`, which is read in any case; what is new is written to `writable`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_warned = False

    @cached_property
    def is_read_only(self) -> bool:
        """Whether the folder, or the nearest that exists above it, cannot be written."""
        nearest = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            return True
        return nearest != self.path and not _can_have_folders(nearest)

    @cached_property
    def writable(self) -> Path:
        """The folder to write to; a temporary one ends with this process."""
        if not self.is_read_only:
            return self.path
        import tempfile  # noqa: PLC0415 - rarely needed

        self._temporary = tempfile.TemporaryDirectory(prefix="tunewright-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def warn(self) -> None:
        """Says once that nothing is kept, if that is so."""
        if self.is_read_only and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s cannot be written: nothing is kept there, and what is built now ends with this process; "
                "set `cache` or TUNEWRIGHT_CACHE to another folder",
                self.path,
            )


def _can_have_folders(parent: Path) -> bool:
    """Whether folders can be made in one that claims it: /proc claims it too, and a home below it is a mistake."""
    probe = parent / f".tunewright-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True
