"""Seeds: configs worth trying first, from wherever they come; raced like any other, trusted no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tunewright.errors import SpaceError
from tunewright.remarks import Remarks
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

log = Remarks(__name__)

Seeds = str | Path | Callable[..., Any] | Iterable[Mapping[str, Any]]
"""A list of configs, a JSON file that holds one, or a function of the named sizes that returns some."""

MOST = 64
"""Seeds that are tried; a file that says more is a table to be searched, not a hint."""


def seeds_of(given: Seeds, space: Space, sizes: Mapping[str, int]) -> tuple[Config, ...]:
    """The configs among `given` that are in `space`; of others it is said why not."""
    kept: dict[Config, None] = {}
    for number, settings in enumerate(_listed(given, sizes), 1):
        if not isinstance(settings, Mapping):
            raise SpaceError(f"seed {number} is {settings!r}; a seed is a config such as {dict(space.first)}")
        if problems := space.objections(settings):
            log.info("seed %d is left out: %s", number, "; ".join(problems))
        elif len(kept) < MOST:
            kept[Config(settings)] = None
    return tuple(kept)


def _listed(given: Seeds, sizes: Mapping[str, int]) -> list[Any]:
    if callable(given):
        given = given(**sizes)
    if isinstance(given, str | Path):
        try:
            given = json.loads(Path(given).read_text())
        except (OSError, ValueError) as error:
            raise SpaceError(f"cannot read the seeds in {given}: {error}; it must be a JSON list of configs") from error
    if isinstance(given, Mapping):
        return [given]
    if not isinstance(given, Iterable):
        raise SpaceError(f"seeds are a list of configs, a JSON file or a function of the sizes, not {given!r}")
    return list(given)
