"""Seeds: configs to try first, from a list, a file or a function; measured like any other config."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tunewright.errors import SpaceError
from tunewright.lazy_logging import LazyLogger
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

log = LazyLogger(__name__)

Seeds = str | Path | Callable[..., Any] | Iterable[Mapping[str, Any]]
"""A list of configs, a JSON file with a list, or a function of the named sizes that returns configs."""

MAX_SEEDS = 64
"""Seeds that are tried; a longer list is a table to search, not a hint."""


def load_seeds(seeds: Seeds, space: Space, sizes: Mapping[str, int]) -> tuple[Config, ...]:
    """Returns the seeds that are in `space`; logs why others are not."""
    configs: dict[Config, None] = {}
    for number, settings in enumerate(_read(seeds, sizes), 1):
        if not isinstance(settings, Mapping):
            raise SpaceError(f"seed {number} is {settings!r}; a seed is a config such as {dict(space.first)}")
        if problems := space.objections(settings):
            log.info("seed %d is skipped: %s", number, "; ".join(problems))
        elif len(configs) < MAX_SEEDS:
            configs[Config(settings)] = None
    return tuple(configs)


def _read(seeds: Seeds, sizes: Mapping[str, int]) -> list[Any]:
    if callable(seeds):
        seeds = seeds(**sizes)
    if isinstance(seeds, str | Path):
        try:
            seeds = json.loads(Path(seeds).read_text())
        except (OSError, ValueError) as error:
            raise SpaceError(f"cannot read the seeds in {seeds}: {error}; it must be a JSON list of configs") from error
    if isinstance(seeds, Mapping):
        return [seeds]
    if not isinstance(seeds, Iterable):
        raise SpaceError(f"seeds are a list of configs, a JSON file or a function of the sizes, not {seeds!r}")
    return list(seeds)
