"""Trials of one kernel as a table: shapes by configs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SettingsError
from tunewright.model.key import Key
from tunewright.model.trial import Timing, Trial
from tunewright.ports.store import Store
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import bucket_of
from tunewright.stats import normal_cdf

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Row = tuple[Mapping[str, int], Config, float]
"""Named sizes, a config, and its seconds; infinite if it failed."""
Journal = tuple[Key, list[Trial]]

LEAST_ERROR = 1e-9
"""Of an estimate, so that what is expected of it is a number."""

MIN_SAMPLES = 3
"""Samples of a config that say something about its error."""


@dataclass(frozen=True)
class ShapeTable:
    """Seconds of configs (columns) on shapes (rows): NaN where nothing was tried, infinite where it failed.

    `weights` say how often each shape comes; they are positive, and only their ratios matter. `errors` are the standard
    errors of the logarithms of times; None if nothing is known of them. Times that are `estimated` were predicted, not
    measured; see `estimates`.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    configs: tuple[Config, ...]
    seconds: Floats
    weights: Floats
    errors: Floats | None = None
    estimated: NDArray[np.bool_] | None = None

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
        return cls.of_decided(store, journals_of(store, kernel))

    @classmethod
    def of_decided(cls, store: Store, journals: Sequence[Journal]) -> ShapeTable:
        """Returns the trials of related keys, in which what won the final race of a shape is its fastest config.

        Races tell apart what trials do not.
        """
        table, decisions = cls.of_journals(journals), store.get_many([key for key, _ in journals])
        rows = {shape: table.seconds[i] for i, shape in enumerate(table.shapes)}
        columns = {config: i for i, config in enumerate(table.configs)}
        for key, decision in decisions.items():
            row = rows.get(tuple(key.signature.dims[name] for name in table.names))
            column = columns.get(decision.config)
            if row is not None and column is not None and decision.evidence is not None and np.isfinite(row[column]):
                row[column] = row[np.isfinite(row)].min()
        return table

    @classmethod
    def of_journals(cls, journals: Sequence[Journal]) -> ShapeTable:
        """Returns the trials of related keys."""
        table = cls.of((key.signature.dims, *cell) for key, trials in journals for cell in cells_of(trials))
        rows = {shape: i for i, shape in enumerate(table.shapes)}
        columns = {config: i for i, config in enumerate(table.configs)}
        errors = np.full_like(table.seconds, np.nan)
        for key, trials in journals:
            row = rows.get(tuple(key.signature.dims[name] for name in table.names))
            for config, error in errors_of(trials).items():
                if row is not None and config in columns:
                    errors[row, columns[config]] = error
        return replace(table, errors=_filled(errors))

    @cached_property
    def sizes(self) -> Floats:
        """The sizes of all shapes, a row each."""
        return np.array(self.shapes, dtype=np.float64)

    @cached_property
    def works(self) -> NDArray[np.bool_]:
        """Where a config has a time: it ran and its results were right, or it is estimated."""
        return np.isfinite(self.seconds)

    @cached_property
    def verified(self) -> NDArray[np.bool_]:
        """Where a config ran and its results were right."""
        return self.works if self.estimated is None else self.works & ~self.estimated

    @cached_property
    def verified_on_bucket(self) -> NDArray[np.bool_]:
        """Where a config was verified on a shape of the same bucket and failed on none of them."""
        buckets = [bucket_of(shape) for shape in self.shapes]
        places = {bucket: place for place, bucket in enumerate(dict.fromkeys(buckets))}
        number = np.array([places[bucket] for bucket in buckets])
        verified, failed = (np.zeros((len(places), len(self.configs)), dtype=bool) for _ in range(2))
        np.logical_or.at(verified, number, self.verified)
        np.logical_or.at(failed, number, np.isinf(self.seconds))
        return np.asarray((verified & ~failed)[number])

    @cached_property
    def regret(self) -> Floats:
        """By which share each config is slower than the best of its shape; infinite where it is not known to work.

        That of an estimate is what is expected: more than nothing where it may be slower or faster than the best.
        """
        best = np.where(self.verified, self.seconds, np.inf).min(axis=1, keepdims=True)
        known = np.where(self.works, self.seconds, np.inf)
        with np.errstate(invalid="ignore", divide="ignore"):
            regret = np.where(np.isfinite(known), known / best - 1, np.inf)
            if self.estimated is not None and self.errors is not None:
                slower, errors = np.log(known / best), np.maximum(self.errors, LEAST_ERROR)
                expected = known / best * np.exp(errors**2 / 2) * normal_cdf(slower / errors + errors)
                expected -= normal_cdf(slower / errors)
                regret = np.where(self.estimated, np.maximum(expected, 0.0), regret)
        return regret

    @cached_property
    def timed(self) -> list[int]:
        """The shapes of which at least one config works."""
        return [int(i) for i in np.flatnonzero(self.works.any(axis=1))]

    @cached_property
    def tuned(self) -> list[int]:
        """The shapes of which at least two configs work."""
        return [int(i) for i in np.flatnonzero(self.works.sum(axis=1) >= 2)]

    def only(self, shapes: Sequence[int]) -> ShapeTable:
        """Returns the table of which all other shapes were not tried."""
        seconds = np.full_like(self.seconds, np.nan)
        seconds[list(shapes)] = self.seconds[list(shapes)]
        estimated = None if self.estimated is None else self.estimated & ~np.isnan(seconds)
        return replace(self, seconds=seconds, estimated=estimated)

    def part(self, shapes: Sequence[int]) -> ShapeTable:
        """Returns the table that has some of the shapes."""
        return replace(
            self,
            shapes=tuple(self.shapes[i] for i in shapes),
            seconds=self.seconds[shapes],
            weights=self.weights[shapes],
            errors=None if self.errors is None else self.errors[shapes],
            estimated=None if self.estimated is None else self.estimated[shapes],
        )

    def sample(self, count: int, shapes: Sequence[int]) -> list[Indices]:
        """Returns configs that work on each of some shapes, so many in all: drawn at random, the same each time."""
        rng, most = np.random.default_rng(0), max(2, count // max(1, len(shapes)))
        return [rng.permutation(np.flatnonzero(self.works[shape]))[:most] for shape in shapes]

    def leveled(self, shape: int, logs: Floats) -> tuple[Floats, int]:
        """Returns logarithms of times with the mean that the trials of a shape have, and the number of these trials."""
        works = self.works[shape]
        return logs + (np.log(self.seconds[shape, works]) - logs[works]).mean(), int(works.sum())

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


def errors_of(trials: Iterable[Trial]) -> dict[Config, float]:
    """Returns the standard error of the logarithm of each config's median time, as far as its samples say."""
    samples: dict[Config, list[float]] = defaultdict(list)
    for trial in trials:
        if isinstance(trial.outcome, Timing) and not trial.outcome.is_first:
            samples[trial.config] += trial.outcome.samples
    # The median of normal numbers varies by a quarter more than their mean.
    return {
        config: 1.25 * float(np.std(np.log(own), ddof=1)) / len(own) ** 0.5
        for config, own in samples.items()
        if len(own) >= MIN_SAMPLES
    }


def _filled(errors: Floats) -> Floats | None:
    """Returns errors with the median of all where a cell has none; None if no cell has any."""
    known = errors[np.isfinite(errors)]
    return np.where(np.isfinite(errors), errors, np.median(known)) if len(known) else None


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
