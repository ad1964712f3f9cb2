"""The trials of a key in columns, small enough to be sent to a browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.model.trial import Failure, Trial
from tunewright.spaces.config import Config, Value

MAX_READ = 250_000
"""Trials of one key that are read."""

MAX_SENT = 20_000
"""Configs that are sent to a browser; of more, the best for each pair of values, and others at random."""


@dataclass(frozen=True)
class TrialColumns:
    """Configs as codes of their values, one column per knob, -1 if a config lacks it; of several trials, the last.

    `total` trials were recorded, of which `read` were read; `trials` has one per config, in order.
    """

    knobs: dict[str, list[Value]]
    codes: NDArray[np.int32]
    trials: Sequence[Trial]
    total: int
    read: int

    @classmethod
    def of(cls, trials: Iterable[Trial], total: int) -> TrialColumns:
        """Creates the columns from recorded trials."""
        last: dict[Config, Trial] = {}
        count = 0
        for trial in islice(trials, MAX_READ):
            last[trial.config] = trial
            count += 1
        values: dict[str, dict[Value, None]] = {}
        for config in last:
            for name, value in config.items():
                values.setdefault(name, {})[value] = None
        knobs = {name: sorted(seen, key=_sort_key) for name, seen in values.items()}
        codes_of_values = {name: {value: code for code, value in enumerate(seen)} for name, seen in knobs.items()}
        codes = np.full((len(last), len(knobs)), -1, np.int32)
        columns = {name: column for column, name in enumerate(knobs)}
        for row, config in enumerate(last):
            for name, value in config.items():
                codes[row, columns[name]] = codes_of_values[name][value]
        return cls(knobs, codes, tuple(last.values()), max(total, count), count)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """The time of each trial; infinite if it failed."""
        return np.array([trial.seconds for trial in self.trials])

    @property
    def best(self) -> float:
        """The shortest time; infinite if all trials failed."""
        return float(self.seconds.min(initial=inf))

    def count_within(self, share: float) -> int:
        """Returns how many configs are at most this share slower than the best."""
        return int(np.sum(self.seconds <= (1 + share) * self.best)) if isfinite(self.best) else 0

    @property
    def failures(self) -> int:
        """The number of configs that failed."""
        return int(np.sum(~np.isfinite(self.seconds)))

    def row(self, config: Mapping[str, Value]) -> int | None:
        """Returns the row of a config."""
        return next((row for row, trial in enumerate(self.trials) if trial.config == config), None)

    def selected_rows(self, fixed: Mapping[str, str]) -> NDArray[np.int64]:
        """Returns the rows to send, with knobs fixed to values (as text): all, or the most informative ones."""
        rows = np.arange(len(self.trials))
        for column, (name, values) in enumerate(self.knobs.items()):
            if name in fixed:
                codes = [code for code, value in enumerate(values) if str(value) == fixed[name]]
                rows = rows[np.isin(self.codes[rows, column], codes)]
        return rows if len(rows) <= MAX_SENT else np.sort(self._most_informative(rows))

    def _most_informative(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the best row of each pair of values, so that every heat map is exact, and others at random."""
        order = rows[np.argsort(self.seconds[rows], kind="stable")]
        selected: set[int] = set()
        for first in range(len(self.knobs)):
            for second in range(first):
                pair = self.codes[order, first].astype(np.int64) << 32 | (
                    self.codes[order, second].astype(np.int64) + 1
                )
                selected.update(order[np.unique(pair, return_index=True)[1]].tolist())
        shuffled = np.random.default_rng(0).permutation(rows)
        rest = (int(row) for row in shuffled if int(row) not in selected)
        selected.update(islice(rest, max(0, MAX_SENT - len(selected))))
        return np.fromiter(selected, np.int64)

    def plain(self, fixed: Mapping[str, str], chosen: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """Returns the data that a browser gets."""
        rows = self.selected_rows(fixed)
        reasons: dict[str, int] = {}
        failed = [_reason(self.trials[row], reasons) for row in rows]
        return {
            "total": self.total,
            "read": self.read,
            "configs": len(self.trials),
            "whole": len(rows) == len(self.trials) or (bool(fixed) and len(rows) < MAX_SENT),
            "fixed": dict(fixed),
            "knobs": [{"name": name, "values": values} for name, values in self.knobs.items()],
            "codes": self.codes[rows].T.tolist(),
            "seconds": [_rounded(self.seconds[row]) for row in rows],
            "failed": failed,
            "reasons": list(reasons),
            "best": _rounded(self.best),
            "rows": None if len(rows) == len(self.trials) else rows.tolist(),
            "chosen": None if chosen is None else self._codes_of(chosen),
        }

    def _codes_of(self, config: Mapping[str, Value]) -> list[int]:
        return [
            values.index(config[name]) if name in config and config[name] in values else -1
            for name, values in self.knobs.items()
        ]


def _sort_key(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _rounded(seconds: float) -> float | None:
    """Returns five digits, more than any clock resolves; None for a failure."""
    return float(f"{seconds:.5g}") if isfinite(seconds) else None


def _reason(trial: Trial, reasons: dict[str, int]) -> int:
    """Returns the index of the reason why a trial failed; -1 if it did not."""
    if not isinstance(trial.outcome, Failure):
        return -1
    reason = f"{trial.outcome.kind} at {trial.outcome.stage}: {trial.outcome.reason}"[:300]
    return reasons.setdefault(reason, len(reasons))
