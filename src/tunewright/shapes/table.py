"""Trials of one kernel as a table: shapes by configs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SettingsError
from tunewright.model.key import Key
from tunewright.model.trial import Timing, Trial
from tunewright.ports.store import Store
from tunewright.spaces.config import Config

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Row = tuple[Mapping[str, int], Config, float]
"""Named sizes, a config, and its seconds; infinite if it failed."""
Journal = tuple[Key, list[Trial]]


@dataclass(frozen=True)
class ShapeTable:
    """Seconds of configs (columns) on shapes (rows): NaN where nothing was tried, infinite where it failed.

    `weights` say how often each shape comes; they are positive, and only their ratios matter.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    configs: tuple[Config, ...]
    seconds: Floats
    weights: Floats

    @classmethod
    def of(cls, rows: Iterable[Row], weights: Mapping[tuple[int, ...], float] | None = None) -> ShapeTable:
        """Returns the table of `rows`; the last row of a shape and config counts. Shapes without a weight weigh 1."""
        entries = list(rows)
        if not entries:
            raise SettingsError("there are no trials to make a table of; tune the kernel on some shapes first")
        names = tuple(entries[0][0])
        if not names:
            raise SettingsError('the kernel names no sizes; declare them, as in `a: In("M", "K")`')
        for sizes, _, _ in entries:
            if set(sizes) != set(names) or min(sizes.values()) < 1:
                raise SettingsError(f"every shape needs {', '.join(names)}, all at least 1; {dict(sizes)} has not")
        cells = {(tuple(sizes[name] for name in names), config): seconds for sizes, config, seconds in entries}
        shapes = {shape: i for i, shape in enumerate(dict.fromkeys(shape for shape, _ in cells))}
        configs = {config: i for i, config in enumerate(dict.fromkeys(config for _, config in cells))}
        seconds = np.full((len(shapes), len(configs)), np.nan)
        for (shape, config), value in cells.items():
            seconds[shapes[shape], configs[config]] = value
        given = weights or {}
        return cls(names, tuple(shapes), tuple(configs), seconds, np.array([given.get(s, 1.0) for s in shapes]))

    @classmethod
    def from_store(cls, store: Store, kernel: str) -> ShapeTable:
        """Returns the journals of a kernel: of the source, device and toolchain that have most trials."""
        return cls.of_journals(journals_of(store, kernel))

    @classmethod
    def of_journals(cls, journals: Sequence[Journal]) -> ShapeTable:
        """Returns the trials of related keys."""
        return cls.of((key.signature.dims, *cell) for key, trials in journals for cell in cells_of(trials))

    @cached_property
    def sizes(self) -> Floats:
        """The sizes of all shapes, a row each."""
        return np.array(self.shapes, dtype=np.float64)

    @cached_property
    def works(self) -> NDArray[np.bool_]:
        """Where a config ran and its results were right."""
        return np.isfinite(self.seconds)

    @cached_property
    def regret(self) -> Floats:
        """By which share each config is slower than the best of its shape; infinite where it is not known to work."""
        known = np.where(self.works, self.seconds, np.inf)
        best = known.min(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(known), known / best - 1, np.inf)

    @cached_property
    def tuned(self) -> list[int]:
        """The shapes of which at least two configs work."""
        return [int(i) for i in np.flatnonzero(self.works.sum(axis=1) >= 2)]

    def only(self, shapes: Sequence[int]) -> ShapeTable:
        """Returns the table of which all other shapes were not tried."""
        seconds = np.full_like(self.seconds, np.nan)
        seconds[list(shapes)] = self.seconds[list(shapes)]
        return ShapeTable(self.names, self.shapes, self.configs, seconds, self.weights)

    def named(self, shape: int) -> dict[str, int]:
        """Returns the sizes of a shape by name."""
        return dict(zip(self.names, self.shapes[shape], strict=True))


def journals_of(store: Store, kernel: str) -> list[Journal]:
    """Returns the journals of a kernel that belong together: of the source, device and toolchain with most trials."""
    related: dict[tuple[str, str], list[Journal]] = defaultdict(list)
    for key in store.keys(kernel):
        if key.signature.dims:
            related[key.related_digest, key.device.model].append((key, list(store.trials(key))))
    if not related:
        raise SettingsError(
            f"{kernel} has no trials with named sizes in this store; tune it on several shapes first: "
            "tunewright tune FILE.py:NAME"
        )
    return max(related.values(), key=lambda found: sum(len(trials) for _, trials in found))


def cells_of(trials: Iterable[Trial]) -> list[tuple[Config, float]]:
    """Returns the configs of a journal with their median time; infinite if the last trial of a config failed."""
    times: dict[Config, list[float]] = {}
    failed: dict[Config, bool] = {}
    for trial in trials:
        failed[trial.config] = not trial.works
        if isinstance(trial.outcome, Timing) and not trial.outcome.is_first:
            times.setdefault(trial.config, []).append(trial.seconds)
    kept = [config for config in failed if failed[config] or config in times]
    return [(config, float("inf") if failed[config] else median(times[config])) for config in kept]
