"""Journal: the trials of a key in columns, small enough to be sent to a browser and explored there."""

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

MOST_READ = 250_000
"""Trials of one key that are looked at."""

MOST_SENT = 20_000
"""Configs that a browser gets; of more, the best for each pair of values, and others at random."""


@dataclass(frozen=True)
class Journal:
    """Configs as codes of their values, a column a knob, -1 where a config has no such knob; the last trial holds.

    `total` trials were recorded, of which `read` were looked at; `trials` are those of different configs, in order.
    """

    knobs: dict[str, list[Value]]
    codes: NDArray[np.int32]
    trials: Sequence[Trial]
    total: int
    read: int

    @classmethod
    def of(cls, trials: Iterable[Trial], total: int) -> Journal:
        """From trials as they were recorded."""
        last: dict[Config, Trial] = {}
        count = 0
        for trial in islice(trials, MOST_READ):
            last[trial.config] = trial
            count += 1
        values: dict[str, dict[Value, None]] = {}
        for config in last:
            for name, value in config.items():
                values.setdefault(name, {})[value] = None
        knobs = {name: sorted(seen, key=_ordered) for name, seen in values.items()}
        places = {name: {value: place for place, value in enumerate(seen)} for name, seen in knobs.items()}
        codes = np.full((len(last), len(knobs)), -1, np.int32)
        columns = {name: column for column, name in enumerate(knobs)}
        for row, config in enumerate(last):
            for name, value in config.items():
                codes[row, columns[name]] = places[name][value]
        return cls(knobs, codes, tuple(last.values()), max(total, count), count)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """What each takes; infinite if it failed."""
        return np.array([trial.seconds for trial in self.trials])

    @property
    def best(self) -> float:
        """The least time; infinite if nothing worked."""
        return float(self.seconds.min(initial=inf))

    def within(self, share: float) -> int:
        """How many are at most so much slower than the best."""
        return int(np.sum(self.seconds <= (1 + share) * self.best)) if isfinite(self.best) else 0

    @property
    def failures(self) -> int:
        """How many configs failed."""
        return int(np.sum(~np.isfinite(self.seconds)))

    def row(self, config: Mapping[str, Value]) -> int | None:
        """Where a config stands."""
        return next((row for row, trial in enumerate(self.trials) if trial.config == config), None)

    def chosen(self, fixed: Mapping[str, str]) -> NDArray[np.int64]:
        """The rows that are sent, where knobs are fixed to values (as text): all, or the telling ones."""
        rows = np.arange(len(self.trials))
        for column, (name, values) in enumerate(self.knobs.items()):
            if name in fixed:
                codes = [place for place, value in enumerate(values) if str(value) == fixed[name]]
                rows = rows[np.isin(self.codes[rows, column], codes)]
        return rows if len(rows) <= MOST_SENT else np.sort(self._telling(rows))

    def _telling(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The best of each pair of values, so that every heat map over all of them is exact; the rest at random."""
        order = rows[np.argsort(self.seconds[rows], kind="stable")]
        kept: set[int] = set()
        for one in range(len(self.knobs)):
            for other in range(one):
                pair = self.codes[order, one].astype(np.int64) << 32 | (self.codes[order, other].astype(np.int64) + 1)
                kept.update(order[np.unique(pair, return_index=True)[1]].tolist())
        others = np.random.default_rng(0).permutation(rows)
        more = (int(row) for row in others if int(row) not in kept)
        kept.update(islice(more, max(0, MOST_SENT - len(kept))))
        return np.fromiter(kept, np.int64)

    def plain(self, fixed: Mapping[str, str], chosen: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """What a browser gets."""
        rows = self.chosen(fixed)
        reasons: dict[str, int] = {}
        failed = [_reason(self.trials[row], reasons) for row in rows]
        return {
            "total": self.total,
            "read": self.read,
            "configs": len(self.trials),
            "whole": len(rows) == len(self.trials) or (bool(fixed) and len(rows) < MOST_SENT),
            "fixed": dict(fixed),
            "knobs": [{"name": name, "values": values} for name, values in self.knobs.items()],
            "codes": self.codes[rows].T.tolist(),
            "seconds": [_short(self.seconds[row]) for row in rows],
            "failed": failed,
            "reasons": list(reasons),
            "best": _short(self.best),
            "rows": None if len(rows) == len(self.trials) else rows.tolist(),
            "chosen": None if chosen is None else self._codes_of(chosen),
        }

    def _codes_of(self, config: Mapping[str, Value]) -> list[int]:
        return [
            values.index(config[name]) if name in config and config[name] in values else -1
            for name, values in self.knobs.items()
        ]


def _ordered(value: Value) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _short(seconds: float) -> float | None:
    """Five digits, which are more than any clock is good for; None for a failure."""
    return float(f"{seconds:.5g}") if isfinite(seconds) else None


def _reason(trial: Trial, reasons: dict[str, int]) -> int:
    """The number of the reason why a trial failed; -1 if it did not."""
    if not isinstance(trial.outcome, Failure):
        return -1
    said = f"{trial.outcome.kind} at {trial.outcome.stage}: {trial.outcome.reason}"[:300]
    return reasons.setdefault(said, len(reasons))
