"""Importance of knobs in the trials of a kernel: as a table, as JSON, or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunewright.cli import output
from tunewright.errors import NoDecision, PluginError, SettingsError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.report import formatting, slices
from tunewright.report.importance import MIN_TRIALS, ImportanceReport, format_share

LOW_EXPLAINED = 0.3
"""Share of explained variance below which the importances are not to be trusted."""


def explain(trials: Sequence[Trial], *, verbose: bool) -> dict[str, Any] | None:
    """Returns the importance of each knob for a JSON answer, None with too few trials; prints a table if `verbose`."""
    importances = ImportanceReport.of(trials)
    if verbose:
        _print_importances(importances)
    if importances is None:
        return None
    knobs = [{"knob": knob.knob, "share": knob.share, "low": knob.low, "high": knob.high} for knob in importances.knobs]
    return {
        "knobs": knobs,
        "explained": importances.explained,
        "trials": importances.trials,
        "failures": importances.failures,
    }


def _print_importances(importances: ImportanceReport | None) -> None:
    """Prints a table, and how far it can be trusted."""
    if importances is None:
        output.echo(f"which knobs mattered cannot be said: that takes {MIN_TRIALS} trials that ran and differ")
        return
    failed = f", {importances.failures} more failed" if importances.failures else ""
    output.echo(f"which knobs mattered, from {formatting.counted(importances.trials, 'trial')}{failed}:")
    output.print_table(
        ("knob", "share of what mattered"), ((knob.knob, format_share(knob)) for knob in importances.knobs)
    )
    is_low = importances.explained < LOW_EXPLAINED
    doubt = "; that is too little to trust the shares: try more configs" if is_low else ""
    output.echo(f"together they explain {importances.explained:.0%} of the variance of held-out trials{doubt}")


def draw(path: Path, key: Key, trials: Sequence[Trial], decision: Decision | None) -> None:
    """Draws the trials knob by knob, ordered by importance if scikit-learn is installed."""
    if not any(trial.works for trial in trials):
        raise NoDecision(f"nothing of {key.kernel} ran yet, so there is nothing to draw; tune it first")
    try:
        importances = ImportanceReport.of(trials)
    except PluginError:
        importances = None
    slices.draw(path, key, trials, decision, importances)


def require_one_shape(shapes: int) -> None:
    """Raises if one picture is asked for several shapes."""
    if shapes > 1:
        raise SettingsError(f"one picture shows one shape, not {shapes}; name it with --shape")
