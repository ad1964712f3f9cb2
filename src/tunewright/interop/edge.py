"""Edge: foreign JSON and text, bounded in size, and checked before anything is believed."""

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
from tunewright.sharing import files
from tunewright.spaces.config import Value

MOST_BYTES = 1 << 30
MOST_TABLE_BYTES = 1 << 26
"""Of a file with configs alone, which is small: those of recordings are not."""
MOST_ROWS = 5_000_000
MOST_VALUES = 100_000
MOST_KNOBS = 256
LONGEST = 2_000
"""Characters of a name, a value or a constraint."""

LARGEST = 1 << 63
"""Beyond every whole number that is a value."""

MOST_NUMBER = sys.float_info.max
"""What a whole number may be and still have a floating-point one beside it."""

_GZIP = b"\x1f\x8b"
_HALVES = re.compile("[\ud800-\udfff]")
"""Of letters: JSON can say them, and no text can be written that has one."""


Pairs = list[tuple[str, Any]]

Mender = Callable[[str], Iterable[str]]
"""Offers what else a damaged text may mean."""


def load(path: Path, mend: Mender | None = None) -> Any:
    """The JSON in a file, which may be compressed by gzip; `mend` offers what else a damaged text may mean."""
    said = text(path, MOST_BYTES)
    try:
        return json.loads(said)
    except RecursionError as error:
        raise WireError(f"{path}: nested too deeply to be a recording") from error
    except ValueError as error:
        for mended in mend(said) if mend else ():
            with suppress(ValueError, RecursionError):
                return json.loads(mended)
        raise WireError(
            f"{path} is not JSON{', nor cut off at its end' if mend else ''}: {error}; get it anew"
        ) from error


def load_table(path: Path, repeated: list[str] | None = None, mend: Mender | None = None) -> Any:
    """The JSON in a small file; a name that one object has twice is added to `repeated`, and the last one counts."""
    said = text(path, MOST_TABLE_BYTES)

    def noted(pairs: Pairs) -> dict[str, Any]:
        seen = dict(pairs)
        if repeated is not None and len(seen) < len(pairs):
            repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return seen

    try:
        return json.loads(said, object_pairs_hook=noted)
    except RecursionError as error:
        raise WireError(f"{path}: nested too deeply to be a table") from error
    except ValueError as error:
        for mended in mend(said) if mend else ():
            with suppress(ValueError, RecursionError):
                return json.loads(mended, object_pairs_hook=noted)
        raise WireError(f"{path} is not JSON: {error}; get it anew") from error


def lines(path: Path) -> list[str]:
    """The lines of a text, without what ends them; the last is empty if the file ends as it should.

    A carriage return is part of its line, since it is to tools that do not expect one.
    """
    found = text(path, MOST_TABLE_BYTES).split("\n")
    if longest := next((number for number, line in enumerate(found, 1) if len(line) > LONGEST), 0):
        raise WireError(f"{path}: line {longest} is longer than {LONGEST:,} characters; it is no table")
    return found


def text(path: Path, most: int) -> str:
    """The text in a file of at most so many bytes, which may be compressed by gzip."""
    try:
        raw = files.content(path, most)
        if raw.startswith(_GZIP):
            with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
                raw = file.read(most + 1)
        if len(raw) > most:
            raise WireError(f"{path} holds more than {most >> 20} MB; split it")
        return raw.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WireError(f"{path} is damaged: {error}; get it anew") from error
    except OSError as error:
        raise WireError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{path} is not text, neither plain nor compressed by gzip") from error
    except (ValueError, MemoryError) as error:  # a path that cannot be, or more than this machine can hold
        raise WireError(f"cannot read {shown(str(path))}: {error}") from error


def save(path: Path, content: Any) -> None:
    """Keep `content` as JSON at `path`, compressed if its name ends in .gz."""
    put(path, compact(content))


def compact(content: Any) -> str:
    """JSON without blanks."""
    return json.dumps(content, separators=(",", ":"))


def put(path: Path, said: str) -> None:
    """Write a text beside `path`, compressed if its name ends in .gz, then move it there."""
    raw = said.encode()
    try:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
        os.replace(fresh, path)
    except (OSError, ValueError) as error:
        raise WireError(f"cannot write {path}: {error}") from error


def made(folder: Path) -> None:
    """Make a folder, if it is not there."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WireError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def mapping(thing: Any, where: str) -> dict[str, Any]:
    """`thing` if it is a JSON object."""
    if not isinstance(thing, dict):
        raise WireError(f"{where} should be an object, not {shown(thing)}")
    return thing


def sequence(thing: Any, where: str, most: int = MOST_ROWS) -> list[Any]:
    """`thing` if it is a JSON array, and not too long."""
    if not isinstance(thing, list):
        raise WireError(f"{where} should be an array, not {shown(thing)}")
    if len(thing) > most:
        raise WireError(f"{where} has {len(thing):,} entries; at most {most:,} are read")
    return thing


def word(thing: Any, where: str) -> str:
    """`thing` if it is a text of reasonable length."""
    if not isinstance(thing, str) or not _is_text(thing) or not thing.strip():
        raise WireError(f"{where} should be a text of at most {LONGEST:,} characters, not {shown(thing)}")
    return thing


def name(thing: Any, where: str) -> str:
    """`thing` if it can be the name of a knob."""
    if not isinstance(thing, str) or not thing.isidentifier() or iskeyword(thing) or len(thing) > LONGEST:
        raise WireError(f"{where} should be a name, not {shown(thing)}; rename that parameter in the file")
    return thing


def value(thing: Any, where: str) -> Value:
    """`thing` if it can be a value of a knob."""
    whole = isinstance(thing, int) and -LARGEST <= thing < LARGEST
    if whole or (isinstance(thing, float) and isfinite(thing)) or _is_text(thing):
        found: Value = thing
        return found
    raise WireError(f"{where} should be a number, a truth value or a text, not {shown(thing)}")


def _is_text(thing: Any) -> bool:
    """Whether it is a text of reasonable length that can be written down again."""
    return isinstance(thing, str) and len(thing) <= LONGEST and _HALVES.search(thing) is None


def number(thing: Any, where: str, otherwise: float | None = None) -> float:
    """`thing` if it is a finite number, not negative; `otherwise` where it is missing."""
    if thing is None and otherwise is not None:
        return otherwise
    if isinstance(thing, bool) or not isinstance(thing, int | float) or not 0 <= thing <= MOST_NUMBER:
        raise WireError(f"{where} should be a number that is not negative, not {shown(thing)}")
    return float(thing)


def shown(thing: Any) -> str:
    """A foreign value, short enough for a message."""
    said = "an object" if isinstance(thing, dict) else "an array" if isinstance(thing, list) else repr(thing)
    return said if len(said) <= 60 else said[:57] + "..."
