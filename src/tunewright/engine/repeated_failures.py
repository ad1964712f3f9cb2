"""Ends a search whose configs all fail to build with the same message: then no knob is the cause."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tunewright.model.decision import Problem
from tunewright.model.trial import Failure, Kind, Stage, Trial
from tunewright.spaces.config import VARIANT

FEW, MANY = 3, 12
"""Equal failures after which a search ends if they have no knob value in common; after which it ends in any case."""

_CHANGING = re.compile(r"\S*/|\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b|\bcc[A-Za-z0-9]{6}\b")
"""What differs between messages about one error: folders, addresses, names of artifacts and temporary names."""


def find_repeated_failure(problem: Problem, trials: Sequence[Trial]) -> str | None:
    """Returns why a search should end: all its trials, the default's among them, failed to build in the same way."""
    # Workers finish in any order, so the default need not be the first.
    if len(trials) < FEW or not all(map(_is_refused, trials)) or all(t.config != problem.default for t in trials):
        return None
    # Of all the configs: a message may have a number that only some of them have.
    values = {str(value) for trial in trials for value in trial.config.values()} - {""}
    if len({_plain_message(_reason(trial), values) for trial in trials}) > 1:
        return None
    space = problem.space
    knobs = [*space.knobs, *(knob for variant in space.variants for knob in variant.knobs)]
    choices = {knob.name: len(knob) for knob in knobs} | {VARIANT: len(space.variants)}
    shared = set.intersection(*(set(trial.config.items()) for trial in trials))
    if len(trials) < MANY and any(choices[name] > 1 for name, _ in shared):
        return None
    tried = f"the first {len(trials)} configs, the default among them"
    return (
        f"{problem.key.kernel}: {tried}, do not build, all for the same reason: {_reason(trials[0])}. "
        "No knob is the cause, so the search ended: correct the source, its flags or its libraries, and call again"
    )


def _is_refused(trial: Trial) -> bool:
    outcome = trial.outcome
    return isinstance(outcome, Failure) and outcome.kind is Kind.REFUSED and outcome.stage in (Stage.BUILD, Stage.LOAD)


def _reason(trial: Trial) -> str:
    return trial.outcome.reason if isinstance(trial.outcome, Failure) else ""


def _plain_message(message: str, values: Collection[str]) -> str:
    """Returns a message without the values of configs and without what changes from build to build."""
    message = _CHANGING.sub("", message)
    for value in sorted(values, key=len, reverse=True):
        message = re.sub(rf"(?<![\w.]){re.escape(value)}(?![\w.])", "#", message)
    return message
