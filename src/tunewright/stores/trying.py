"""The mark "trying": names the configs that run now, so that one that ends the process or the machine is found out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunewright.errors import WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.spaces.config import Config
from tunewright.stores import files, process_id, serialization

log = LazyLogger(__name__)

_held: set[Path] = set()
"""The marks of this process. Its own locks do not stop it, so it must not take them for those of a dead process."""


class _Header(msgspec.Struct, frozen=True):
    """The first line of a mark: who tries, on which boot of which machine, and whether trials run in workers."""

    by: str
    host: str
    boot: str
    isolated: bool


class _Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A further line: configs that begin to run, or that are done. A race runs several at once.

    With a `reason`, the config that starts is the one to blame, and nothing else ran.
    """

    start: tuple[Config, ...] = ()
    end: tuple[Config, ...] = ()
    reason: str = ""


class Blame(NamedTuple):
    """What a search died of: `reasons` by config, and the `suspects` of a race, of which nobody knows which it was."""

    by: str
    reasons: dict[Config, str]
    suspects: tuple[Config, ...]


class Trying:
    """The mark of one search: a file that is locked while the process lives, and removed when the search ends.

    A line is on the disk before its configs run. Without a `folder`, or where none can be written, there is no mark.
    """

    def __init__(self, folder: Path | None, digest: str, by: str, *, isolated: bool) -> None:
        self._folder, self._digest = folder, digest
        self._header = _Header(by, os.uname().nodename, _boot_id() if folder else "", isolated)
        self._path: Path | None = None
        self._file = self._process = -1

    def start(self, *configs: Config) -> None:
        """Writes that these configs run now, and waits until that is on the disk."""
        if self._folder is not None and self._path is None:
            self._open(self._folder)
        self._write(_Step(start=configs), durable=True)

    def end(self, *configs: Config) -> None:
        """Writes that these configs are done."""
        self._write(_Step(end=configs))

    def blame(self, config: Config | None, reason: str) -> None:
        """Leaves the mark behind with one config to blame, although this process lives: it must not be tried again."""
        if config is None:
            return
        if self._folder is not None and self._path is None:
            self._open(self._folder)
        self._write(_Step(start=(config,), reason=reason), durable=True)
        if self._path is not None and self._process == process_id.current:
            os.close(self._file)
            _held.discard(self._path)
        self._path = None

    def close(self) -> None:
        """Removes the mark: the search ended or was interrupted, and no config is to blame."""
        # A process forked by a config must not remove the mark of its parent.
        if self._path is not None and self._process == process_id.current:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            _held.discard(self._path)
        self._path = None

    def _open(self, folder: Path) -> None:
        name = f"{self._digest}-{os.urandom(8).hex()}"
        hidden, path = folder / f".{name}", folder / name
        try:
            files.make_folder(folder, durable=True)
            file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            return self._give_up(error)
        self._file, self._path, self._process = file, path, process_id.current
        _held.add(path)
        try:
            # Locked before it gets the name that others look for. A forked process does not inherit such a lock.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, serialization.encode(self._header) + b"\n")
            os.rename(hidden, path)
            files.sync(folder)
        except OSError as error:
            hidden.unlink(missing_ok=True)
            self._give_up(error)

    def _write(self, step: _Step, *, durable: bool = False) -> None:
        if self._path is None or self._process != process_id.current:
            return
        try:
            os.write(self._file, serialization.encode(step) + b"\n")
            if durable:
                os.fsync(self._file)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Goes on without a mark: a read-only or full disk does not stop a search."""
        log.info("a config that ends this process will not be remembered: %s", error)
        self.close()
        self._folder = None

    def find_blame(self, *, fresh: bool = False) -> Iterator[Blame]:
        """Yields what earlier searches of the same key died of on this machine; with `fresh`, removes their marks.

        Only a restart of the machine is blamed on a config that ran in a worker: another may have ended the process
        of the search. Marks with nobody to blame are removed; the others stay, so that the config stays blamed.
        """
        for path in sorted(self._folder.glob(f"{self._digest}-*")) if self._folder else ():
            try:
                blame = None if path in _held else self._read(path)
                if blame is not None and (fresh or not blame.reasons):
                    path.unlink(missing_ok=True)
            except OSError as error:  # in use, or not ours to read
                log.debug("the mark %s is skipped: %s", path, error)
            except WireError as error:  # the machine stopped before its first line was on the disk: nothing had run
                log.debug("the mark %s is removed: %s", path, error)
                path.unlink(missing_ok=True)
            else:
                if blame is not None and not fresh:
                    yield blame

    def _read(self, path: Path) -> Blame | None:
        """Returns the blame of a dead search; None for another machine's. Raises BlockingIOError if it is alive."""
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            first, *lines = file.read().split(b"\n")
        header, own = serialization.decode(first, _Header), self._header
        restarted = header.boot != own.boot
        if restarted and header.host != own.host:
            return None
        running: list[tuple[Config, ...]] = []
        what = f"{'the machine restarted' if restarted else 'the process ended'} while it was tried"
        for line in lines[:-1]:  # what follows the last end of line was not on the disk in time: it did not run
            step = serialization.decode(line, _Step)
            running = [configs for configs in running if configs != step.end] + [step.start] * bool(step.start)
            running, what = ([step.start], step.reason) if step.reason else (running, what)
        if header.isolated and not restarted:
            running = []
        reason = f"{what}; run with fresh=True to try it again"
        return Blame(
            header.by,
            {configs[0]: reason for configs in running if len(configs) == 1},
            tuple(config for configs in running if len(configs) > 1 for config in configs),
        )


def _boot_id() -> str:
    """Returns an id of this boot of the machine; empty where the system has none, and no restart is noticed."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
