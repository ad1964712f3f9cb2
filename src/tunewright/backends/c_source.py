"""Parses C source: its includes, its normalized text, and the arguments of a function."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tunewright.errors import BackendError, SignatureError
from tunewright.model.signature import Parameter, Signature
from tunewright.spaces.config import Config

_QUOTED = r"""(?P<keep>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_COMMENTS = re.compile(_QUOTED + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_BLANKS = re.compile(_QUOTED + r"|\s+")
_INCLUDE = re.compile(r'^\s*#\s*(?:include|include_next|import)\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
_LOOKED_FOR = re.compile(r'__has_include(?:_next)?\s*\(\s*(?:"([^"]+)"|<([^>]+)>)')

_TYPES: dict[str, tuple[str, Any]] = {
    "float": ("float32", ctypes.c_float), "double": ("float64", ctypes.c_double), "_Float16": ("float16", None),
    "int8_t": ("int8", ctypes.c_int8), "int16_t": ("int16", ctypes.c_int16), "int32_t": ("int32", ctypes.c_int32),
    "int64_t": ("int64", ctypes.c_int64), "uint8_t": ("uint8", ctypes.c_uint8), "uint16_t": ("uint16", ctypes.c_uint16),
    "uint32_t": ("uint32", ctypes.c_uint32), "uint64_t": ("uint64", ctypes.c_uint64), "int": ("int32", ctypes.c_int),
    "long": ("int64", ctypes.c_long), "size_t": ("uint64", ctypes.c_size_t), "bool": ("bool", ctypes.c_bool),
}  # fmt: skip
"""C types as numpy dtypes and ctypes; types that are not listed are not checked."""

_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__restrict__", "static"}


class SourceFileBackend:
    """Base class of backends whose kernels are in a source file."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self._source_path = Path(source).expanduser()

    @cached_property
    def path(self) -> Path:
        """The source file, which must exist."""
        if not self._source_path.is_file():
            raise BackendError(f"no source file {self._source_path} (looked in {Path.cwd()}); give its path")
        return self._source_path.resolve()

    def relative_to(self, folder: Path) -> None:
        """Prefers a source file in `folder`, that of the kernel's declaration, over the working directory."""
        if (candidate := folder / self._source_path).is_file():
            self._source_path = candidate


class CArgument(NamedTuple):
    """One argument of a C function: the dtype it points to (None: unknown), and its ctype."""

    points_at: str | None
    ctype: Any

    def find_mismatch(self, dtype: str) -> str | None:
        """Returns how an array of `dtype` would be misread if element sizes differ; None if it fits or is unknown."""
        try:
            passed, expected = np.dtype(dtype), np.dtype(self.points_at) if self.points_at else None
        except TypeError:
            return None
        if expected is None or passed.kind == "c" or passed.itemsize == expected.itemsize:
            return None
        return f"{dtype}, but the function takes a pointer to {expected}"


def normalize_source(text: str) -> str:
    """Returns C source without comments, blank lines and runs of blanks."""
    plain = _COMMENTS.sub(lambda m: m["keep"] or " ", text)
    lines = (_BLANKS.sub(lambda m: m["keep"] or " ", line).strip() for line in plain.splitlines())
    return "\n".join(line for line in lines if line)


def local_includes(path: Path) -> list[Path]:
    """Returns the headers that a file includes by a quoted path, and those that they include."""
    return find_includes(path, ())


def find_includes(path: Path, folders: Sequence[Path]) -> list[Path]:
    """Returns the headers that a file includes, under any `#if`, and those that they include.

    Quoted ones are looked for beside the file and in every folder, others in every folder: which of several headers
    of one name is read, the compiler decides.
    """
    headers: dict[Path, None] = {}
    pending = [path]
    while pending:
        current = pending.pop()
        for quoted, name in _INCLUDE.findall(current.read_text(errors="replace")):
            for folder in (current.parent, *folders) if quoted else folders:
                header = (folder / (quoted or name)).resolve()
                if header not in headers and header.is_file():
                    headers[header] = None
                    pending.append(header)
    return list(headers)


def included_names(path: Path) -> list[str]:
    """Returns the names of headers that a file includes or looks for, under any `#if`."""
    text = path.read_text(errors="replace")
    return [quoted or name for found in (_INCLUDE, _LOOKED_FOR) for quoted, name in found.findall(text)]


def parse_make_rules(rules: str, folder: Path = Path()) -> list[Path]:
    """Returns the files in make rules of a compiler (`-MM`) that ran in `folder`."""
    paths: dict[Path, None] = {}
    for line in rules.replace("\\\n", " ").splitlines():
        words = re.split(r"(?<!\\)\s+", line.partition(": ")[2].strip())
        names = [word.replace("\\ ", " ").replace("\\#", "#").replace("$$", "$") for word in words if word]
        paths |= dict.fromkeys(Path(os.path.realpath(folder / name)) for name in names)
    return list(paths)


def parse_prototype(text: str, function: str) -> list[CArgument] | None:
    """Returns the arguments in the definition of `function`; None if there is no definition, or more than one."""
    definitions = re.findall(rf"\bvoid\s+{re.escape(function)}\s*\(([^)]*)\)\s*\{{", normalize_source(text))
    if len(definitions) != 1:
        return None
    return [_argument(part) for part in definitions[0].split(",") if part.strip() not in ("", "void")]


def check_arrays(
    parameters: Sequence[Parameter], signature: Signature, arguments: Sequence[CArgument] | None, file: str
) -> None:
    """Raises SignatureError for arrays that a function would misread, since it gets bare pointers."""
    for i, (parameter, text) in enumerate(zip(parameters, signature.args, strict=True)):
        if text.rpartition("]")[2].startswith(":"):
            raise SignatureError(
                f"{parameter.name} is {text}, but a C kernel gets a bare pointer; "
                f"pass np.ascontiguousarray({parameter.name})"
            )
        if arguments and i < len(arguments) and (mismatch := arguments[i].find_mismatch(text.partition("[")[0])):
            raise SignatureError(f"{parameter.name} is an array of {mismatch} in {file}")


def compiler_options(config: Config) -> list[str]:
    """Returns a config as compiler options."""
    options: list[str] = []
    for name, value in config.items():
        if isinstance(value, str) and (value.startswith("-") or not value):
            options += shlex.split(value)
        else:
            options.append(f"-D{name}={int(value) if isinstance(value, bool) else value}")
    return options


def _argument(text: str) -> CArgument:
    words = [word for word in re.findall(r"\w+", text) if word not in _QUALIFIERS]
    dtype, ctype = _TYPES.get(words[0], (None, None)) if len(words) == 2 else (None, None)
    if "*" in text or "[" in text:
        return CArgument(dtype, ctypes.c_void_p)
    return CArgument(None, ctype)
