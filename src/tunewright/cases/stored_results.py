"""Results of a launch in a file, for the process that judges them: plain data, never code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.inputs import parse_dtype


class StoredArray(msgspec.Struct, frozen=True, tag="array"):
    """An array in a file: its dtype, shape, and where its bytes begin."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    scalar: bool = False


class StoredPlain(msgspec.Struct, frozen=True, tag="plain"):
    """A plain value."""

    value: bool | int | float | str | None


class StoredSequence(msgspec.Struct, frozen=True, tag="sequence"):
    """A tuple or list of results."""

    parts: tuple[StoredArray | StoredPlain, ...]
    is_tuple: bool = True


StoredResult = StoredArray | StoredPlain | StoredSequence


def write_results(path: Path, results: Mapping[str, Any]) -> dict[str, StoredResult] | None:
    """Writes the arrays of results to a file; returns what describes them, or None if some are not plain data."""
    with path.open("wb") as file:

        def store(value: Any) -> StoredArray | StoredPlain:
            if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject and value.dtype.names is None:
                offset = file.tell()
                array = np.asarray(value)
                file.write(
                    np.ascontiguousarray(array).view(np.uint8).data if array.size and array.ndim else array.tobytes()
                )
                return StoredArray(array.dtype.name, array.shape, offset, isinstance(value, np.generic))
            if isinstance(value, bool | int | float | str) or value is None:
                return StoredPlain(value)
            raise TypeError(type(value).__name__)

        try:
            return {
                name: StoredSequence(tuple(map(store, value)), isinstance(value, tuple))
                if isinstance(value, tuple | list)
                else store(value)
                for name, value in results.items()
            }
        except (TypeError, ValueError):
            return None


def read_results(path: Path, stored: Mapping[str, StoredResult]) -> dict[str, Any]:
    """Returns results as they were written."""
    data = path.read_bytes()

    def load(value: StoredArray | StoredPlain) -> Any:
        if isinstance(value, StoredPlain):
            return value.value
        dtype = parse_dtype(value.dtype)
        array = np.frombuffer(data, dtype, int(np.prod(value.shape)), value.offset).reshape(value.shape)
        return array[()] if value.scalar else array

    def load_all(parts: Sequence[StoredArray | StoredPlain]) -> list[Any]:
        return [load(part) for part in parts]

    return {
        name: (tuple(load_all(value.parts)) if value.is_tuple else load_all(value.parts))
        if isinstance(value, StoredSequence)
        else load(value)
        for name, value in stored.items()
    }
