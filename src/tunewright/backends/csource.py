"""C source as text: what it includes, what the compiler sees of it, and which arguments a function takes."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tunewright.errors import BackendError
from tunewright.spaces.config import Config

_QUOTED = r"""(?P<keep>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_COMMENTS = re.compile(_QUOTED + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_BLANKS = re.compile(_QUOTED + r"|\s+")
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

_TYPES: dict[str, tuple[str, Any]] = {
    "float": ("float32", ctypes.c_float), "double": ("float64", ctypes.c_double), "_Float16": ("float16", None),
    "int8_t": ("int8", ctypes.c_int8), "int16_t": ("int16", ctypes.c_int16), "int32_t": ("int32", ctypes.c_int32),
    "int64_t": ("int64", ctypes.c_int64), "uint8_t": ("uint8", ctypes.c_uint8), "uint16_t": ("uint16", ctypes.c_uint16),
    "uint32_t": ("uint32", ctypes.c_uint32), "uint64_t": ("uint64", ctypes.c_uint64), "int": ("int32", ctypes.c_int),
    "long": ("int64", ctypes.c_long), "size_t": ("uint64", ctypes.c_size_t), "bool": ("bool", ctypes.c_bool),
}  # fmt: skip
"""C types as numpy and ctypes know them; a type that is not listed is not judged."""

_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__restrict__", "static"}


class InFile:
    """A backend whose kernels stand in a source file."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self._given = Path(source).expanduser()

    @cached_property
    def path(self) -> Path:
        """The source file, which must exist."""
        if not self._given.is_file():
            raise BackendError(f"no source file {self._given} (looked in {Path.cwd()}); give its path")
        return self._given.resolve()

    def relative_to(self, folder: Path) -> None:
        """Look for the source beside the file that declares the kernel first, and then where we stand."""
        if (beside := folder / self._given).is_file():
            self._given = beside


class Argument(NamedTuple):
    """One argument of a C function: what a pointer points at (None: unknown), and how ctypes passes it."""

    points_at: str | None
    ctype: Any

    def misread(self, dtype: str) -> str | None:
        """What C would take an array of `dtype` for, if elements of another size; None if it fits or is unknown."""
        try:
            given, taken = np.dtype(dtype), np.dtype(self.points_at) if self.points_at else None
        except TypeError:
            return None
        if taken is None or given.kind == "c" or given.itemsize == taken.itemsize:
            return None
        return f"{dtype}, but the function takes a pointer to {taken}"


def normalised(text: str) -> str:
    """C source without comments, blank lines and runs of blanks: what the compiler sees, wherever it stands."""
    plain = _COMMENTS.sub(lambda m: m["keep"] or " ", text)
    lines = (_BLANKS.sub(lambda m: m["keep"] or " ", line).strip() for line in plain.splitlines())
    return "\n".join(line for line in lines if line)


def local_includes(path: Path) -> list[Path]:
    """The headers that a file includes by a path of its own, and those that they include."""
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        here = waiting.pop()
        for name in _LOCAL_INCLUDE.findall(here.read_text(errors="replace")):
            there = (here.parent / name).resolve()
            if there.is_file() and there not in found:
                found[there] = None
                waiting.append(there)
    return list(found)


def listed(rule: str, source: Path) -> list[Path]:
    """The files in a make rule as compilers write it (`-MM`), without the source itself."""
    words = re.split(r"(?<!\\)\s+", rule.partition(":")[2].replace("\\\n", " ").strip())
    paths = [Path(os.path.realpath(word.replace("\\ ", " "))) for word in words if word]
    return [path for path in paths if path != source]


def prototype(text: str, function: str) -> list[Argument] | None:
    """The arguments of `function` as its definition has them; None if there is none to read, or more than one."""
    found = re.findall(rf"\bvoid\s+{re.escape(function)}\s*\(([^)]*)\)\s*\{{", normalised(text))
    if len(found) != 1:
        return None
    return [_argument(part) for part in found[0].split(",") if part.strip() not in ("", "void")]


def as_options(config: Config) -> list[str]:
    """A config as compiler options."""
    made: list[str] = []
    for name, value in config.items():
        if isinstance(value, str) and (value.startswith("-") or not value):
            made += shlex.split(value)
        else:
            made.append(f"-D{name}={int(value) if isinstance(value, bool) else value}")
    return made


def _argument(text: str) -> Argument:
    words = [word for word in re.findall(r"\w+", text) if word not in _QUALIFIERS]
    dtype, ctype = _TYPES.get(words[0], (None, None)) if len(words) == 2 else (None, None)
    if "*" in text or "[" in text:
        return Argument(dtype, ctypes.c_void_p)
    return Argument(None, ctype)
