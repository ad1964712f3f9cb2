"""Files of commands: digests, copies that are new for each run, and outputs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from tunewright.commands.guardian import remove
from tunewright.errors import BackendError
from tunewright.ports.candidate import WrongResult

NO_FILE = "no file"
"""The digest of what is neither a file nor a folder."""


def path_digest(path: Path, *, known: bool = False) -> str:
    """Returns a digest of a file's contents, or of all files in a folder with their names.

    If it is `known`, a file that looks the same as before is not read again. Outputs are always read: a file system
    cannot tell apart what was written within some milliseconds.
    """
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a cached launch never needs

    if not path.is_dir():
        return _file_digest(path, known=known)
    digest = sha256()
    for inner in sorted(_files_in(path)):
        digest.update(f"{inner.relative_to(path).as_posix()}\0{_file_digest(inner, known=known)}\0".encode())
    return digest.hexdigest()


def _file_digest(path: Path, *, known: bool) -> str:
    if not path.is_file():  # reading a pipe would not end
        return NO_FILE
    found = path.stat()
    version = str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return _known_digest(*version) if known else _read_digest(*version)


def _read_digest(path: str, size: int, modified: int, changed: int) -> str:
    """Returns the digest of a file, of which this is the version."""
    from hashlib import file_digest  # noqa: PLC0415 - as above

    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


_known_digest = lru_cache(maxsize=4096)(_read_digest)


def _files_in(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def size_of(path: Path) -> int:
    """Returns the bytes of a file, or of all files in a folder."""
    return sum(inner.stat().st_size for inner in _files_in(path)) if path.is_dir() else path.stat().st_size


class InputFiles:
    """The inputs of a command: kept once as they were, and put into the folder of each run.

    Most are copied each time. Constant ones are linked: a run that changes one is wrong, and it is copied anew.
    """

    def __init__(self, given: Mapping[str, Path], constant: frozenset[str]) -> None:
        self._given, self._constant = given, constant
        self._kept: dict[str, Path] = {}
        self._digests: dict[str, str] = {}
        self._versions: dict[str, tuple[int, int, int]] = {}

    def keep(self, folder: Path) -> None:
        """Copies all inputs into a folder that no command runs in."""
        folder.mkdir(exist_ok=True)
        for name in self._given:
            self._keep(name, folder)

    def _keep(self, name: str, folder: Path) -> None:
        path = self._given[name]
        kept = self._kept[name] = folder / name
        try:
            remove(kept)
            _copy(path, kept)
        except OSError as error:
            raise BackendError(f"cannot read {path}, the file {{{name}}}: {error.strerror or error}") from error
        if name in self._constant and kept.is_dir():
            raise BackendError(f"{{{name}}} is a folder, and only a file can be constant; take it out of constant=")
        if name in self._constant:
            kept.chmod(stat.S_IREAD | (kept.stat().st_mode & stat.S_IXUSR))
            self._digests[name] = path_digest(kept)

    def kept(self, name: str) -> Path:
        """Returns an input as it was given; no run can reach it by its name."""
        return self._kept[name]

    def put_into(self, folder: Path) -> None:
        """Puts all inputs into the folder of a run."""
        for name, kept in self._kept.items():
            place = folder / self._given[name].name
            if name in self._constant:
                os.link(kept, place)
                self._versions[name] = _version(kept)
            else:
                _copy(kept, place)

    def require_unchanged(self) -> None:
        """Raises WrongResult if a run changed a constant input."""
        for name in self._constant:
            kept = self._kept[name]
            if _version(kept) != self._versions[name] and path_digest(kept) != self._digests[name]:
                self._keep(name, kept.parent)
                raise WrongResult(f"it wrote to {{{name}}}, which is declared constant")


def _version(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _copy(source: Path, target: Path) -> None:
    """Copies a file or a folder with its modes and times."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)
