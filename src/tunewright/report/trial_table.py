"""Trials as a table: a pandas DataFrame where pandas is installed, else plain dictionaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tunewright.model.trial import Failure, Trial
from tunewright.report.notebook import TrialTable

COLUMNS = ("seconds", "outcome", "reason", "build_seconds", "run_seconds", "at")
"""What a row has besides the knobs: time per run, how the trial ended and why, what it cost, and when it ended."""


def make(trials: Sequence[Trial]) -> Any:
    """Returns one row for each trial, in order; knobs first, `knob_` before one that is also a column."""
    rows = TrialTable(_row(trial) for trial in trials)
    try:
        import pandas as pd  # noqa: PLC0415 - used if it is there
    except ImportError:
        return rows
    knobs = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    return pd.DataFrame(list(rows), columns=[*knobs, *COLUMNS])


def _row(trial: Trial) -> dict[str, Any]:
    failure = trial.outcome if isinstance(trial.outcome, Failure) else None
    knobs = {f"knob_{name}" if name in COLUMNS else name: value for name, value in trial.config.items()}
    outcome = ("ok", "") if failure is None else (str(failure.kind), f"at {failure.stage}: {failure.reason}")
    seconds = math.nan if failure else trial.seconds
    return {
        **knobs,
        **dict(zip(COLUMNS, (seconds, *outcome, trial.build_seconds, trial.run_seconds, trial.at), strict=True)),
    }
