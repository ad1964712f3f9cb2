"""C source as text: what it includes, what the compiler sees of it, and which arguments a function takes."""

from __future__ import annotations

import os
import re
from pathlib import Path

_QUOTED = r"""(?P<keep>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_COMMENTS = re.compile(_QUOTED + r"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_BLANKS = re.compile(_QUOTED + r"|\s+")
_LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

DTYPES = {
    "float": "float32", "double": "float64", "_Float16": "float16", "int8_t": "int8", "int16_t": "int16",
    "int32_t": "int32", "int64_t": "int64", "uint8_t": "uint8", "uint16_t": "uint16", "uint32_t": "uint32",
    "uint64_t": "uint64", "int": "int32", "bool": "bool", "_Bool": "bool",
}  # fmt: skip
"""What a pointer to each of these types may point at; a type that is not listed is not judged."""

_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__restrict__", "struct", "static"}


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


def pointers(text: str, function: str) -> list[str | None]:
    """For each argument of `function`, the dtype it points at; None where it is no pointer or of another type."""
    found = re.search(rf"\bvoid\s+{re.escape(function)}\s*\(([^)]*)\)\s*\{{", normalised(text))
    if not found:
        return []
    kinds: list[str | None] = []
    for argument in found[1].split(","):
        words = [word for word in re.findall(r"\w+", argument) if word not in _QUALIFIERS]
        pointed = "*" in argument or "[" in argument
        kinds.append(DTYPES.get(words[0]) if pointed and len(words) == 2 else None)
    return kinds
