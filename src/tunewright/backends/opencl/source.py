"""OpenCL source as text: which arguments a kernel takes, and what a compiler complains of first."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from tunewright.backends.csource import normalised

_TYPES = {
    "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32",
    "long": "int64", "ulong": "uint64", "half": "float16", "float": "float32", "double": "float64", "bool": "bool",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "restrict", "global", "constant", "private", "local"}
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")


class Taken(NamedTuple):
    """One argument of an OpenCL kernel: its name, the dtype it has or points at if known, and where that lies."""

    name: str
    dtype: np.dtype[Any] | None
    is_pointer: bool
    is_local: bool


def taken(text: str, function: str) -> list[Taken] | None:
    """The arguments of a kernel as its definition has them; None if there is none to read, or more than one."""
    plain = _ATTRIBUTE.sub(" ", normalised(text))
    found = re.findall(rf"\bkernel\s+void\s+{re.escape(function)}\s*\(([^)]*)\)\s*\{{", plain.replace("__", ""))
    if len(found) != 1:
        return None
    return [_argument(part) for part in found[0].split(",") if part.strip() not in ("", "void")]


def _argument(text: str) -> Taken:
    every = re.findall(r"\w+", text)
    words = [word for word in every if word not in _QUALIFIERS]
    known = _TYPES.get(words[0]) if len(words) == 2 else None
    return Taken(words[-1], np.dtype(known) if known else None, "*" in text, "local" in every)


def first_error(log: str) -> str:
    """The first line of a build log that says error, without the path before it; else its first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in lines if "error:" in line.lower()), lines[0] if lines else "")
    return re.sub(r"^\S*/(?=[^/\s]*:\d)", "", said)
