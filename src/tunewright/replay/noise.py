"""Noisy replay: trials drawn from the spread of each recorded time, and the final race that decides between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import msgspec
import numpy as np

from tunewright.engine.decide import MAX_FINALISTS
from tunewright.model.trial import Timing, Trial
from tunewright.replay.tables import RecordedTable

MAX_SPREAD = 0.05
"""Relative spreads count up to this: a trial runs beside the incumbent, so that slow moods of a machine cancel."""

ROUNDS = 64
"""Timings of each finalist; the race compares their means."""


@dataclass(frozen=True)
class NoisyTimes:
    """Times drawn around those of a table: log-normal, with the relative spread of each row."""

    table: RecordedTable
    seed: int

    def trial(self, row: int) -> Trial:
        """Returns the trial of a row with a time drawn for this seed."""
        trial = self.table.trials[row]
        if not isinstance(trial.outcome, Timing):
            return trial
        outcome = msgspec.structs.replace(trial.outcome, samples=(self._draw(row, 0, 1),))
        return msgspec.structs.replace(trial, outcome=outcome)

    def decide(self, rows: list[int]) -> list[float | None]:
        """Returns the recorded time of what a race would decide for after each trial; None if nothing works yet."""
        decided: list[float | None] = []
        finalists: list[tuple[float, float, float]] = []  # by trial, by race, as recorded
        for row in rows:
            seconds = float(self.table.seconds[row])
            if not np.isnan(seconds):
                finalists.append((self._draw(row, 0, 1), self._draw(row, 1, ROUNDS), seconds))
                finalists = sorted(finalists)[:MAX_FINALISTS]
            decided.append(min(((raced, time) for _, raced, time in finalists), default=(inf, None))[1])
        return decided

    def _draw(self, row: int, purpose: int, rounds: int) -> float:
        """Returns the mean of some timings of a row, equal for equal arguments."""
        spread = min(float(self.table.spreads[row]), MAX_SPREAD) / rounds**0.5
        deviation = np.random.default_rng((self.seed, row, purpose)).standard_normal()
        return float(self.table.seconds[row] * np.exp(spread * deviation))
