"""Shapes with their weights: how often they come, from a file or from the misses of a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunewright.errors import NoDecision, SettingsError
from tunewright.stores.capabilities import RecordsMisses

WeightedShape = tuple[dict[str, int], float]
WEIGHT = "weight"


def read_shapes(path: Path, dims: Sequence[str]) -> list[WeightedShape]:
    """Returns the shapes in a file.

    JSON is a list of objects of sizes, which may have a `weight`. Other files have a shape on each line, as
    `M=8,N=512` or `8,512`, and may have a weight after a space.
    """
    try:
        text = path.read_text()
        entries = json.loads(text) if path.suffix == ".json" else _parse_lines(text, dims)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read the shapes in {path}: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise SettingsError(f"{path} has no list of shapes; write objects of sizes, or a shape on each line")
    return [_checked(entry, dims, path) for entry in entries]


def _parse_lines(text: str, dims: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if shape := line.partition("#")[0].strip():
            try:
                found.append(_parse_line(shape, dims))
            except ValueError as error:
                raise ValueError(f"line {number}, {shape!r}: {error}") from error
    return found


def _parse_line(line: str, dims: Sequence[str]) -> dict[str, Any]:
    shape, _, weight = line.partition(" ")
    parts = shape.split(",")
    if "=" in shape:
        named = {name: int(size) for name, _, size in (part.partition("=") for part in parts)}
    elif len(parts) == len(dims):
        named = dict(zip(dims, map(int, parts), strict=True))
    else:
        raise ValueError(f"{line!r} has {len(parts)} sizes, the kernel has {', '.join(dims)}")
    return {**named, **({WEIGHT: float(weight)} if weight.strip() else {})}


def _checked(entry: Any, dims: Sequence[str], path: Path) -> WeightedShape:
    sizes = {name: entry.get(name) for name in dims} if isinstance(entry, dict) else {}
    weight = entry.get(WEIGHT, 1.0) if isinstance(entry, dict) else 0.0
    right = sizes and all(type(size) is int and size > 0 for size in sizes.values())
    if not right or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        absent = [name for name in dims if sizes.get(name) is None]
        lacks = f"; it has no {', '.join(absent)}" if absent else ""
        raise SettingsError(
            f"{path}: {entry!r} should have {', '.join(dims)}, all at least 1, and a positive weight{lacks}"
        )
    return {name: int(size) for name, size in sizes.items() if size is not None}, float(weight)


def recorded_shapes(store: Any, kernel: str, dims: Sequence[str]) -> list[WeightedShape]:
    """Returns the shapes of a kernel that mode=record found missing, weighted by the time of their calls."""
    misses = store.misses() if isinstance(store, RecordsMisses) else ()
    found = [
        ({name: miss.key.signature.dims[name] for name in dims}, max(miss.seconds, 1e-9))
        for miss in misses
        if miss.key.kernel == kernel and miss.key.signature.dims.keys() == set(dims)
    ]
    if not found:
        raise NoDecision(
            f"no shapes of {kernel} are recorded in this store; run your program with TUNEWRIGHT_MODE=record first"
        )
    return found
