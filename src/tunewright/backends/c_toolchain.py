"""The compilers of C and C++: which are used, how they are run, and the words of their flags."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tunewright.errors import BackendError

CPP_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C")
SOURCE_SUFFIXES = (".c", *CPP_SUFFIXES)

_COMPILERS = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}
_VARIABLES = {"c": "CC", "c++": "CXX"}

INCLUDE_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
"""Variables with folders in which compilers look for headers."""

_PATH_OPTIONS = ("-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-I", "-L", "-B", "-T")
_JOINED_OPTIONS = ("-isystem", "-iquote", "-idirafter", "-I", "-L", "-l", "-B")
_WORD_OPTIONS = {"-x", "-D", "-U", "-o", "-u", "-z", "-MF", "-MT", "-MQ", "-Xlinker", "-Xassembler", "-Xpreprocessor"}
_SEPARATE_OPTIONS = {*_PATH_OPTIONS, *_WORD_OPTIONS, "-l"}


_ERROR_LINE = re.compile(r"error|undefined reference|\bld(?:\.\w+)?: (?!warning)", re.IGNORECASE)


class Compiler(NamedTuple):
    """A compiler: the words of its command, and its version."""

    command: tuple[str, ...]
    version: str


class Flag(NamedTuple):
    """An option with its value, if it has one: `-I` and `include`. The option of a plain file name is empty."""

    option: str
    value: str

    def words(self) -> list[str]:
        """Returns the flag as words of a command."""
        if not self.value:
            return [self.option]
        if not self.option:
            return [self.value]
        return [self.option, self.value] if self.option in _SEPARATE_OPTIONS - {"-l"} else [self.option + self.value]


def is_cpp(path: Path) -> bool:
    """Whether a file is C++, by its suffix."""
    return path.suffix in CPP_SUFFIXES


def language_of(path: Path) -> str:
    """Returns "c++" or "c", by the file's suffix."""
    return "c++" if is_cpp(path) else "c"


def find_compiler(language: str, named: str | None) -> Compiler:
    """Returns the compiler that is named, else that of CC or CXX, else the first that is installed."""
    import shutil  # noqa: PLC0415 - as in run

    variable = _VARIABLES[language]
    # CC and CXX are not settings of ours: every build tool reads them.
    chosen = named or os.environ.get(variable, "").strip()  # noqa: TID251
    for name in [chosen] if chosen else _COMPILERS[language]:
        words = [name] if shutil.which(name) else shlex.split(name)
        if words and (path := shutil.which(words[0])):
            version = (run([path, *words[1:], "--version"])[0].splitlines() or [name])[0].strip()
            return Compiler((path, *words[1:]), " ".join([version, *words[1:]]))
    looked_for = chosen or ", ".join(_COMPILERS[language])
    origin = f" in {variable}" if chosen and not named else ""
    raise BackendError(
        f"no compiler found (looked for {looked_for}{origin}); install gcc or clang, or give `compiler=` or {variable}"
    )


def parse_flags(words: Sequence[str]) -> list[Flag]:
    """Returns the words of a compiler's command as flags."""
    flags, rest = [], iter(words)
    for word in rest:
        if word in _SEPARATE_OPTIONS:
            flags.append(Flag(word, next(rest, "")))
        elif joined := next((option for option in _JOINED_OPTIONS if word.startswith(option)), ""):
            flags.append(Flag(joined, word.removeprefix(joined)))
        else:
            flags.append(Flag(word, "") if word.startswith("-") else Flag("", word))
    return flags


def locate_flags(words: Sequence[str], locate: Callable[[str], Path]) -> list[str]:
    """Returns the words with the paths in them located; a path that does not exist stays as it is."""
    located: list[str] = []
    for flag in parse_flags(words):
        names_path = flag.value and (flag.option in _PATH_OPTIONS or not flag.option)
        path = locate(flag.value) if names_path else None
        located += (flag._replace(value=str(path)) if path is not None and path.exists() else flag).words()
    return located


def folders_of(words: Sequence[str], *options: str) -> list[str]:
    """Returns the values of some options, such as the folders of `-I`."""
    return [flag.value for flag in parse_flags(words) if flag.option in options]


def environment_folders(*variables: str) -> list[Path]:
    """Returns the folders in variables that compilers read, such as CPATH."""
    # Not settings of ours: they decide which files the compiler finds.
    texts = [os.environ.get(variable, "") for variable in variables]  # noqa: TID251
    return [Path(part) for text in texts for part in text.split(os.pathsep) if part]


def run(
    command: Sequence[str], *, folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Runs a compiler and returns its output; raises BackendError with its first error if it fails."""
    import subprocess  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    env = None if environ is None else {**os.environ, **environ}  # noqa: TID251 - handed on
    try:
        process = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise BackendError(f"cannot run {command[0]}: {error.strerror}") from error
    if process.returncode:
        raise BackendError(_first_error(process.stderr) or f"{command[0]} exited with {process.returncode}")
    return process.stdout, process.stderr


def _first_error(stderr: str) -> str:
    """Returns the first line of an error of the compiler or linker, without its path; else the last line."""
    for line in stderr.splitlines():
        # What collect2 says follows what the linker said, and has no reason; an included file may be called "error".
        if not line.lstrip().startswith(("collect2:", "In file included from", "from ")) and _ERROR_LINE.search(line):
            return re.sub(r"^\S*/", "", line.strip())
    return stderr.strip().splitlines()[-1] if stderr.strip() else ""
