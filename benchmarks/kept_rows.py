"""Rows of a long benchmark, kept in a file as they come, so that an interrupted run can be continued."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class KeptRows:
    """Rows by level and number; with a path, those of earlier runs are there again."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._rows = path, dict[tuple[str, int], dict[str, Any]]()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self._rows[row["level"], row["number"]] = row

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._rows

    def add(self, level: str, number: int, **row: Any) -> None:
        """Keep a row; it is on the disk when this returns."""
        kept = {"level": level, "number": number, **row}
        self._rows[level, number] = kept
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(kept) + "\n")

    def of(self, level: str, most: int) -> Iterator[dict[str, Any]]:
        """The rows of a level with numbers below `most`."""
        return (row for (own, number), row in sorted(self._rows.items()) if own == level and number < most)


def say_progress(line: str, began: float, done: int, total: int) -> None:
    """Say what one of `total` steps found, and how long the others will take; `began` is of the monotonic clock."""
    remaining = (time.monotonic() - began) / done * (total - done) / 60
    print(f"{line}, {remaining:.1f} minutes left", file=sys.stderr, flush=True)
