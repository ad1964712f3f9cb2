"""Configs to try first, as a file for `tunewright tune --seeds`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def seeds_file(configs: Sequence[Any]) -> Iterator[list[str]]:
    """Yields the options by which a search tries these configs first; none if there are none."""
    if not configs:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix="tunewright-seeds-", suffix=".json") as file:
        json.dump(list(configs), file)
        file.flush()
        yield ["--seeds", file.name]
