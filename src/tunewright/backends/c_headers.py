"""The headers that compilers really read for a kernel, those of the system too, with digests of their bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path

import msgspec

from tunewright.backends.c_source import included_names, parse_make_rules
from tunewright.backends.c_toolchain import INCLUDE_VARIABLES, Compiler, run
from tunewright.backends.file_digests import file_digest, has_settled, looks_of
from tunewright.backends.host import digest
from tunewright.errors import BackendError
from tunewright.stores import files

IMPLICIT = "stdc-predef.h"
"""The header of the C library that compilers read before every source: a few standard macros."""

MAX_NOTE_BYTES = 1 << 24

_SEARCHED = re.compile(r"^#include (?:\"\.\.\.\"|<\.\.\.>) search starts here:$|^End of search list\.$")


_as_path = cache(Path)
"""Returns a path; headers of the system are the same hundreds of files for every kernel."""


class HeaderScan(msgspec.Struct, frozen=True):
    """What a compiler read: each header with how it looks and its digest, and where others would be found first.

    How a header looks is empty if it had changed just before: it might change again and look the same.
    """

    headers: dict[str, tuple[str, str]]
    absent: list[str]

    def is_current(self, cache: Path) -> bool:
        """Whether every header is as it was, and none has appeared that would be read instead."""
        try:
            same = all(
                looks_of(os.stat(path)) == looks or file_digest(Path(path), cache) == found
                for path, (looks, found) in self.headers.items()
            )
        except OSError:
            return False
        return same and not any(map(os.path.exists, self.absent))

    def digests(self) -> dict[Path, str]:
        """Returns the digest of each header."""
        return {_as_path(path): found for path, (_, found) in self.headers.items()}


class ScanRequest(msgspec.Struct, frozen=True):
    """A compiler with its options, the sources of its language, and headers of the user that they may include."""

    compiler: Compiler
    language: str
    options: Sequence[str]
    units: Sequence[Path]
    own: Sequence[Path]

    def name(self, cache: Path) -> str:
        """Returns a digest of all that decides which headers are read, besides their own texts."""
        variables = [os.environ.get(name, "") for name in INCLUDE_VARIABLES]  # noqa: TID251 - the compiler reads them
        texts = [f"{path} {file_digest(path, cache)}" for path in (*self.units, *self.own)]
        words = [*self.compiler.command, self.compiler.version, self.language, *self.options]
        return digest(*words, *variables, os.getcwd(), *texts)


_scans: dict[str, HeaderScan] = {}


def scan_headers(request: ScanRequest, cache: Path) -> dict[Path, str]:
    """Returns the headers that a compiler reads, with digests. The compiler is run only if something changed."""
    name = request.name(cache)
    note = cache / "headers" / name
    scan = _scans.get(name) or _read_note(note)
    if scan is None or not scan.is_current(cache):
        scan = _scan(request, cache)
        with suppress(OSError):  # a cache that cannot be written: another process asks the compiler again
            files.write_atomic(note, msgspec.json.encode(scan))
    _scans[name] = scan
    return scan.digests()


def _read_note(note: Path) -> HeaderScan | None:
    try:
        return msgspec.json.decode(files.read_bounded(note, MAX_NOTE_BYTES, own=True), type=HeaderScan)
    except (OSError, msgspec.MsgspecError):
        return None


def _scan(request: ScanRequest, cache: Path) -> HeaderScan:
    """Asks the compiler; a source that needs its knobs before it includes anything has only what its text says."""
    ask = partial(_ask, request)
    try:
        read, folders = ask(list(map(str, request.units)))
    except BackendError:
        read, folders = [], _search_folders(request)
    names = list(dict.fromkeys(name for path in (*request.units, *request.own) for name in included_names(path)))
    unread = [name for name in names if not any(str(path).endswith(f"/{name}") for path in read)]
    available = {name: found for name in unread if (found := _find(name, folders))}
    with suppress(BackendError):  # a header that cannot be read alone counts by itself
        if available:
            options = [word for name in available for word in ("-include", name)]
            read += ask([*options, "-x", request.language, os.devnull])[0]
    read = [path for path in dict.fromkeys([*read, *available.values()]) if path not in request.units]
    headers = {str(path): (_settled_looks(path), file_digest(path, cache)) for path in read if path.is_file()}
    absent = list(dict.fromkeys([*_earlier_places(read, folders), *_missing_places(names, folders)]))
    return HeaderScan(headers, absent)


def _settled_looks(path: Path) -> str:
    status = path.stat()
    return looks_of(status) if has_settled(status) else ""


def _ask(request: ScanRequest, words: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Returns the files that the compiler reads for some words, and the folders in which it looks for headers."""
    rules, said = run([*request.compiler.command, "-M", "-v", *request.options, *words])
    return [path for path in parse_make_rules(rules) if str(path) != os.devnull], list(_listed_folders(said))


def _search_folders(request: ScanRequest) -> list[Path]:
    with suppress(BackendError):
        return _ask(request, ["-x", request.language, os.devnull])[1]
    return []


def _listed_folders(said: str) -> Iterator[Path]:
    """Yields the folders in what a compiler says with `-v`, in the order in which it looks."""
    listing = False
    for line in said.splitlines():
        if _SEARCHED.match(line):
            listing = not line.startswith("End")
        elif listing:
            yield Path(os.path.realpath(line.strip()))


def _find(name: str, folders: Iterable[Path]) -> Path | None:
    return next((Path(os.path.realpath(folder / name)) for folder in folders if (folder / name).is_file()), None)


def _earlier_places(read: Iterable[Path], folders: Sequence[Path]) -> Iterator[str]:
    """Yields where a header, or the folder it would be in, is missing and would come before one that was read."""
    for path in read:
        for number, folder in enumerate(folders):
            if path.is_relative_to(folder):
                relative = path.relative_to(folder)
                for earlier in folders[:number]:
                    yield from _missing_part(earlier, relative)
                break


def _missing_places(names: Iterable[str], folders: Sequence[Path]) -> Iterator[str]:
    """Yields where headers would be that no folder has: `__has_include` may have looked for them."""
    for name in names:
        if not _find(name, folders):
            for folder in folders:
                yield from _missing_part(folder, Path(name))


def _missing_part(folder: Path, relative: Path) -> Iterator[str]:
    """Yields the first part of a path that does not exist, if any: one folder instead of the many files in it."""
    parts = (folder / part for part in [*reversed(relative.parents), relative])
    yield from islice((str(path) for path in parts if not path.exists()), 1)


def describe_headers(digests: Mapping[Path, str]) -> str:
    """Returns headers of the system as a field of the key: a digest of what they say, wherever they are."""
    found = sorted(text for path, text in digests.items() if path.name != IMPLICIT)
    return digest(*found)[:16] if found else ""
