"""The files that a build of a C kernel reads: sources, headers and libraries, as they are declared and as they are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tunewright.backends.c_source import find_includes
from tunewright.backends.c_toolchain import (
    INCLUDE_VARIABLES,
    SOURCE_SUFFIXES,
    Flag,
    environment_folders,
    folders_of,
    locate_flags,
    parse_flags,
)
from tunewright.backends.elf import needed_files
from tunewright.backends.file_digests import file_digest
from tunewright.errors import BackendError

_LIBRARY_FILE = re.compile(r"\.(?:a|o|so(?:\.[\d.]+)?)$")
_SHARED_FILE = re.compile(r"\.so(?:\.[\d.]+)?$")
_INCLUDE_OPTIONS = ("-I", "-isystem", "-iquote", "-idirafter")

_PARTS_OF_COMPILER = {"m", "c", "pthread", "dl", "rt", "stdc++", "gomp", "omp", "gcc", "gcc_s", "atomic", "quadmath"}
"""Libraries that come with the compiler or the C library, whose version is in the key."""

_MULTIARCH = f"{platform.machine()}-linux-gnu"
_SYSTEM_FOLDERS = tuple(
    Path(folder)
    for folder in (
        "/usr/local/lib", "/usr/local/lib64", f"/usr/lib/{_MULTIARCH}", "/usr/lib64", "/usr/lib", f"/lib/{_MULTIARCH}",
        "/lib64", "/lib",
    )
)  # fmt: skip
_SYSTEM_PREFIXES = (
    "/usr/lib", "/usr/include/", "/usr/share/", "/usr/local/lib", "/usr/local/include/", "/lib", "/etc/", "/proc/",
)  # fmt: skip


@dataclass
class Project:
    """The declared files of a kernel; relative paths are meant from `folder`, that of the file which declares it."""

    sources: Sequence[str]
    flags: Sequence[str]
    include: Sequence[str] = ()
    libraries: Sequence[str] = ()
    library_paths: Sequence[str] = ()
    folder: Path | None = None
    _found: dict[tuple[Path | None, str], Path] = field(default_factory=dict, repr=False)

    def locate(self, name: str) -> Path:
        """Returns where a file or folder is: beside the declaring file, else in the working directory."""
        path = Path(name).expanduser()
        beside = self.folder / path if self.folder is not None else path
        return Path(os.path.abspath(beside if beside.exists() else path))

    def require(self, name: str, what: str) -> Path:
        """Returns where a file or folder is; raises BackendError if there is none."""
        if (self.folder, name) not in self._found:
            if not (path := self.locate(name)).exists():
                raise BackendError(f"no {what} {name} (looked in {self.folder or Path.cwd()}); give its path")
            self._found[self.folder, name] = path.resolve()
        return self._found[self.folder, name]

    def files(self) -> list[Path]:
        """Returns all declared sources."""
        return [self.require(name, "source file") for name in self.sources]

    def units(self) -> list[Path]:
        """Returns the sources that are compiled, the first in any case; others only count in the key."""
        first, *others = self.files()
        return [first, *(path for path in others if path.suffix in SOURCE_SUFFIXES)]

    def include_options(self) -> list[str]:
        """Returns the declared folders of headers as options."""
        return [f"-I{self.require(name, 'folder')}" for name in self.include]

    def located(self, words: Sequence[str]) -> list[str]:
        """Returns the words of flags with their paths located."""
        return locate_flags(words, self.locate)

    def headers(self) -> list[Path]:
        """Returns the user's headers that the sources include, under any `#if`."""
        declared = [*self.include, *folders_of(self.flags, *_INCLUDE_OPTIONS)]
        folders = [self.locate(name) for name in declared] + environment_folders(*INCLUDE_VARIABLES)
        own = [folder for folder in folders if not str(folder.resolve()).startswith("/usr/include")]
        preloaded = [self.locate(name) for name in folders_of(self.flags, "-include", "-imacros")]
        extra = [path.resolve() for path in preloaded if path.is_file()]
        found = (header for path in [*self.units(), *extra] for header in find_includes(path, own))
        return list(dict.fromkeys([*extra, *found]))

    def link_flags(self, options: Sequence[str]) -> list[Flag]:
        """Returns what is linked: libraries and their folders, of the declaration and of other options."""
        declared = [Flag("-L", name) for name in self.library_paths]
        for library in self.libraries:
            is_file = "/" in library or _LIBRARY_FILE.search(library)
            declared.append(Flag("", library) if is_file else Flag("-l", library.removeprefix("-l")))
        return declared + [
            flag
            for flag in parse_flags(options)
            if flag.option in ("-L", "-l") or (not flag.option and _LIBRARY_FILE.search(flag.value))
        ]

    def linked(self, options: Sequence[str]) -> dict[str, list[Path]]:
        """Returns the files that each library may come from, by its name; none for one that the system does not have.

        Every file of that name in the folders of the user counts, shared or not, since options decide among them.
        """
        flags = self.link_flags(options)
        folders = [self.locate(flag.value) for flag in flags if flag.option == "-L"]
        folders += environment_folders("LIBRARY_PATH")
        found: dict[str, list[Path]] = {}
        for flag in flags:
            if flag.option == "-l":
                own = [*_library_files(flag.value, folders)]
                if own or flag.value not in _PARTS_OF_COMPILER:
                    found[flag.value] = own or [*dict.fromkeys(_library_files(flag.value, _SYSTEM_FOLDERS))]
            elif not flag.option and (path := self.locate(flag.value)).is_file():
                found[path.name] = [path.resolve()]
        own = [path for paths in found.values() for path in paths if not is_of_system(path)]
        needed = needed_files(own, [*folders, *environment_folders("LD_LIBRARY_PATH")])
        return found | {path.name: [path] for path in needed if not is_of_system(path)}

    def link_options(self, options: Sequence[str]) -> list[str]:
        """Returns the options that link the declared libraries, and with which shared ones of the user are found."""
        declared = self.link_flags(())
        words = [word for flag in declared for word in self._link_words(flag)]
        folders = dict.fromkeys(path.parent for path in self.shared(options))
        # Not "new" tags: LD_LIBRARY_PATH would come before those, and bring other bytes than the key has.
        return words + [f"-Wl,--disable-new-dtags,-rpath,{folder}" for folder in folders]

    def _link_words(self, flag: Flag) -> list[str]:
        if flag.option == "-l":
            return flag.words()
        what = "folder" if flag.option else "library"
        return Flag(flag.option, str(self.require(flag.value, what))).words()

    def shared(self, options: Sequence[str]) -> list[Path]:
        """Returns the shared libraries of the user that may be linked."""
        files = [path for paths in self.linked(options).values() for path in paths]
        return [path for path in files if _SHARED_FILE.search(path.name) and not is_of_system(path)]

    def library_digests(self, options: Sequence[str], cache: Path) -> dict[str, str]:
        """Returns a digest of the bytes of each library that is linked; empty for one that is not found."""
        return {
            name: " ".join(file_digest(path, cache)[:16] for path in paths)
            for name, paths in self.linked(options).items()
        }


def is_of_system(path: Path, compiler: str = "") -> bool:
    """Whether a file comes with the system or with the compiler."""
    return os.path.abspath(path).startswith((*_SYSTEM_PREFIXES, *_compiler_prefixes(compiler)))


@cache
def _compiler_prefixes(compiler: str) -> tuple[str, ...]:
    """Returns the folder that a compiler is installed in, if that has its own headers."""
    root = Path(compiler).resolve().parent.parent
    own = compiler and any(any(root.glob(pattern)) for pattern in ("lib*/gcc", "lib*/clang"))
    return (f"{root}/",) if own else ()


def check_reads(
    read: Iterable[Path], known: Iterable[Path], compiler: str = "", advice: str = "name it in sources=[...]"
) -> None:
    """Raises BackendError with advice if a build read a file of the user that is not in the key."""
    expected = set(known)
    for path in dict.fromkeys(os.path.realpath(path) for path in read):
        if Path(path) not in expected and os.path.isfile(path) and not is_of_system(Path(path), compiler):
            raise BackendError(
                f"the build read {os.path.basename(path)}, which is not in the key: a change of it would go unnoticed; "
                f"{advice}"
            )


def traced_files(trace: str) -> Iterator[Path]:
    """Yields the files in the trace of a linker (`-t`); members of archives are written (lib.a)m.o or lib.a(m.o)."""
    for line in map(str.strip, trace.splitlines()):
        name = line[1:].partition(")")[0] if line.startswith("(") else line.partition("(")[0]
        if name:
            yield Path(name)


def loaded_files(listing: str) -> Iterator[Path]:
    """Yields the libraries in what `ldd` prints."""
    for line in listing.splitlines():
        if match := re.match(r"\s*(?:\S+ => )?(/.*) \(0x[0-9a-f]+\)$", line):
            yield Path(match[1])


def describe_libraries(digests: Mapping[str, str]) -> str:
    """Returns the libraries as a field of the key."""
    return ", ".join(f"{name} {found}".strip() for name, found in sorted(digests.items()))


def _library_files(name: str, folders: Iterable[Path]) -> Iterator[Path]:
    names = [name.removeprefix(":")] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
    for folder in folders:
        for file in names:
            if (folder / file).is_file():
                yield (folder / file).resolve()
