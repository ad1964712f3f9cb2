"""Parses OpenCL source and build logs: the arguments of a kernel, and the first error."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from tunewright.backends.c_source import normalize_source

_TYPES = {
    "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32",
    "long": "int64", "ulong": "uint64", "half": "float16", "float": "float32", "double": "float64", "bool": "bool",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "restrict", "global", "constant", "private", "local"}
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")


class KernelArgument(NamedTuple):
    """One argument of an OpenCL kernel: its name, its dtype or that it points to if known, and its address space."""

    name: str
    dtype: np.dtype[Any] | None
    is_pointer: bool
    is_local: bool


def parse_arguments(text: str, function: str) -> list[KernelArgument] | None:
    """Returns the arguments in the definition of a kernel; None if there is no definition, or more than one."""
    plain = _ATTRIBUTE.sub(" ", normalize_source(text))
    definitions = re.findall(rf"\bkernel\s+void\s+{re.escape(function)}\s*\(([^)]*)\)\s*\{{", plain.replace("__", ""))
    if len(definitions) != 1:
        return None
    return [_argument(part) for part in definitions[0].split(",") if part.strip() not in ("", "void")]


def _argument(text: str) -> KernelArgument:
    words = re.findall(r"\w+", text)
    names = [word for word in words if word not in _QUALIFIERS]
    dtype = _TYPES.get(names[0]) if len(names) == 2 else None
    return KernelArgument(names[-1], np.dtype(dtype) if dtype else None, "*" in text, "local" in words)


def first_error(log: str) -> str:
    """Returns the first line of a build log with "error:", without its path; else the first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    line = next((line for line in lines if "error:" in line.lower()), lines[0] if lines else "")
    return re.sub(r"^\S*/(?=[^/\s]*:\d)", "", line)
