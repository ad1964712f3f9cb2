"""Knobs: which of them mattered in what was tried, as a table, as JSON or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunewright.cli import output
from tunewright.errors import NoDecision, PluginError, SettingsError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.report import slices, words
from tunewright.report.importance import FEWEST, Importances, percent

LITTLE = 0.3
"""Share of variance foretold, below which the shares are said to mean little."""


def as_plain(found: Importances | None) -> dict[str, Any] | None:
    """For a JSON answer; None where nothing can be said."""
    if found is None:
        return None
    knobs = [{"knob": one.knob, "share": one.share, "low": one.low, "high": one.high} for one in found.knobs]
    return {"knobs": knobs, "explained": found.explained, "trials": found.trials, "failures": found.failures}


def tell(found: Importances | None) -> None:
    """For people: a table, and how far it can be trusted."""
    if found is None:
        output.say(f"which knobs mattered cannot be said: that takes {FEWEST} trials that ran and differ")
        return
    failed = f", {found.failures} more failed" if found.failures else ""
    output.say(f"which knobs mattered, from {words.counted(found.trials, 'trial')}{failed}:")
    output.table(("knob", "share of what mattered"), ((one.knob, percent(one)) for one in found.knobs))
    doubt = "; that is little, so trust the shares little: try more configs" if found.explained < LITTLE else ""
    output.say(f"together they foretell {found.explained:.0%} of the variance of trials not learned from{doubt}")


def draw(path: Path, key: Key, trials: Sequence[Trial], decision: Decision | None) -> None:
    """The space as tried, knob by knob; by importance if scikit-learn is there to tell it."""
    if not any(trial.works for trial in trials):
        raise NoDecision(f"nothing of {key.kernel} ran yet, so there is nothing to draw; tune it first")
    try:
        found = Importances.of(trials)
    except PluginError:
        found = None
    slices.draw(path, key, trials, decision, found)


def for_one(shapes: int) -> None:
    """Refuse one picture for several shapes."""
    if shapes > 1:
        raise SettingsError(f"one picture shows one shape, not {shapes}; name it with --shape")
