"""Reads foreign JSON and text, with bounds on size and checks of types."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from keyword import iskeyword
from math import isfinite
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.spaces.config import Value
from tunewright.stores import files

MAX_BYTES = 1 << 30
MAX_TABLE_BYTES = 1 << 26
"""Limit of files that have only configs; recordings may be larger."""
MAX_ROWS = 5_000_000
MAX_VALUES = 100_000
MAX_KNOBS = 256
MAX_CHARS = 2_000
"""Characters of a name, a value or a constraint."""

MAX_INT = 1 << 63
"""Bound of integer values."""

MAX_FLOAT = sys.float_info.max
"""Largest number that converts to a float."""

_GZIP = b"\x1f\x8b"
_SURROGATES = re.compile("[\ud800-\udfff]")
"""Lone surrogates: JSON can contain them, but text with one cannot be encoded."""


Pairs = list[tuple[str, Any]]

Repair = Callable[[str], Iterable[str]]
"""Returns possible repairs of a damaged text."""


def load(path: Path, mend: Repair | None = None) -> Any:
    """Returns the JSON in a file, which may be compressed by gzip; `mend` yields repairs of a damaged text."""
    content = read_text(path, MAX_BYTES)
    try:
        return json.loads(content)
    except RecursionError as error:
        raise WireError(f"{path}: nested too deeply to be a recording") from error
    except ValueError as error:
        for repaired in mend(content) if mend else ():
            with suppress(ValueError, RecursionError):
                return json.loads(repaired)
        raise WireError(
            f"{path} is not JSON{', nor truncated JSON' if mend else ''}: {error}; get a new copy"
        ) from error


def load_table(path: Path, repeated: list[str] | None = None, mend: Repair | None = None) -> Any:
    """Returns the JSON in a small file; names that an object has twice are added to `repeated`, and the last counts."""
    content = read_text(path, MAX_TABLE_BYTES)

    def note_repeats(pairs: Pairs) -> dict[str, Any]:
        fields = dict(pairs)
        if repeated is not None and len(fields) < len(pairs):
            repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return fields

    try:
        return json.loads(content, object_pairs_hook=note_repeats)
    except RecursionError as error:
        raise WireError(f"{path}: nested too deeply to be a table") from error
    except ValueError as error:
        for repaired in mend(content) if mend else ():
            with suppress(ValueError, RecursionError):
                return json.loads(repaired, object_pairs_hook=note_repeats)
        raise WireError(f"{path} is not JSON: {error}; get a new copy") from error


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file without line breaks; the last one is empty if the file ends with a line break.

    Carriage returns are kept, as they are by tools that do not expect them.
    """
    lines = read_text(path, MAX_TABLE_BYTES).split("\n")
    if too_long := next((number for number, line in enumerate(lines, 1) if len(line) > MAX_CHARS), 0):
        raise WireError(f"{path}: line {too_long} is longer than {MAX_CHARS:,} characters; it is no table")
    return lines


def read_text(path: Path, max_bytes: int) -> str:
    """Returns the text in a file of at most `max_bytes`, which may be compressed by gzip."""
    try:
        raw = files.read_bounded(path, max_bytes)
        if raw.startswith(_GZIP):
            with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
                raw = file.read(max_bytes + 1)
        if len(raw) > max_bytes:
            raise WireError(f"{path} has more than {max_bytes >> 20} MB; split it")
        return raw.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WireError(f"{path} is damaged: {error}; get a new copy") from error
    except OSError as error:
        raise WireError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{path} is not text, neither plain nor compressed by gzip") from error
    except (ValueError, MemoryError) as error:  # an invalid path, or too large for memory
        raise WireError(f"cannot read {quote(str(path))}: {error}") from error


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON to `path`, compressed if its name ends in .gz."""
    write_file(path, compact(content))


def compact(content: Any) -> str:
    """Returns JSON without whitespace."""
    return json.dumps(content, separators=(",", ":"))


def write_file(path: Path, content: str) -> None:
    """Write a text to `path` by a temporary file, compressed if its name ends in .gz."""
    raw = content.encode()
    try:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        raise WireError(f"cannot write {path}: {error}") from error


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WireError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def check_object(thing: Any, where: str) -> dict[str, Any]:
    """Returns `thing` if it is a JSON object."""
    if not isinstance(thing, dict):
        raise WireError(f"{where} should be an object, not {quote(thing)}")
    return thing


def check_array(thing: Any, where: str, max_length: int = MAX_ROWS) -> list[Any]:
    """Returns `thing` if it is a JSON array of at most `max_length`."""
    if not isinstance(thing, list):
        raise WireError(f"{where} should be an array, not {quote(thing)}")
    if len(thing) > max_length:
        raise WireError(f"{where} has {len(thing):,} entries; at most {max_length:,} are read")
    return thing


def check_text(thing: Any, where: str) -> str:
    """Returns `thing` if it is a text of allowed length."""
    if not isinstance(thing, str) or not _is_text(thing) or not thing.strip():
        raise WireError(f"{where} should be a text of at most {MAX_CHARS:,} characters, not {quote(thing)}")
    return thing


def check_name(thing: Any, where: str) -> str:
    """Returns `thing` if it can be the name of a knob."""
    if not isinstance(thing, str) or not thing.isidentifier() or iskeyword(thing) or len(thing) > MAX_CHARS:
        raise WireError(f"{where} should be a name, not {quote(thing)}; rename that parameter in the file")
    return thing


def check_value(thing: Any, where: str) -> Value:
    """Returns `thing` if it can be a value of a knob."""
    is_integer = isinstance(thing, int) and -MAX_INT <= thing < MAX_INT
    if is_integer or (isinstance(thing, float) and isfinite(thing)) or _is_text(thing):
        value: Value = thing
        return value
    raise WireError(f"{where} should be a number, a boolean or a text, not {quote(thing)}")


def _is_text(thing: Any) -> bool:
    """Returns whether it is a text of allowed length that can be encoded."""
    return isinstance(thing, str) and len(thing) <= MAX_CHARS and _SURROGATES.search(thing) is None


def check_number(thing: Any, where: str, default: float | None = None) -> float:
    """Returns `thing` if it is a finite number that is not negative; `default` if it is missing."""
    if thing is None and default is not None:
        return default
    if isinstance(thing, bool) or not isinstance(thing, int | float) or not 0 <= thing <= MAX_FLOAT:
        raise WireError(f"{where} should be a number that is not negative, not {quote(thing)}")
    return float(thing)


def quote(thing: Any) -> str:
    """Returns a foreign value as text, short enough for a message."""
    text = "an object" if isinstance(thing, dict) else "an array" if isinstance(thing, list) else repr(thing)
    return text if len(text) <= 60 else text[:57] + "..."
