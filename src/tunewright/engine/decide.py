"""Decide: from trials to a decision; on a tie the incumbent stays, then the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from tunewright.errors import NothingWorked
from tunewright.measure.stats import interval
from tunewright.model.config import Config
from tunewright.model.decision import Decision, Evidence, Finalist, Problem
from tunewright.model.trial import Failure, Timing, Trial

MOST_TIES = 16


def decide(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> Decision:
    """The fastest config, unless the samples cannot tell it from the incumbent or the default."""
    timed = [(trial, trial.outcome) for trial in trials if isinstance(trial.outcome, Timing)]
    if not timed:
        raise NothingWorked(_post_mortem(problem, trials))
    field = {trial.config: _finalist(trial.config, timing) for trial, timing in timed}
    order = sorted(field.values(), key=lambda f: (f.seconds, problem.space.rank(f.config)))
    leader = order[0]
    ties = [finalist for finalist in order if finalist.low <= leader.high][:MOST_TIES]
    chosen, notes = leader, []
    for config, note in (
        (incumbent, "no gain over the earlier decision"),
        (problem.default, "no gain over the default"),
    ):
        if config is not None and config in field and field[config].low <= leader.high:
            chosen, notes = field[config], [note]
            break
    default = field.get(problem.default)
    if default is None:
        notes.append("the default config does not work here")
    evidence = Evidence(
        seconds=chosen.seconds,
        low=chosen.low,
        high=chosen.high,
        default_seconds=default.seconds if default else None,
        ties=tuple(finalist for finalist in ties if finalist.config != chosen.config),
        trials=len(trials),
        failures=sum(isinstance(trial.outcome, Failure) for trial in trials),
        clock=timed[0][1].clock,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(notes),
    )
    return Decision(problem.key, chosen.config, evidence)


def _finalist(config: Config, timing: Timing) -> Finalist:
    low, high = interval(timing.samples)
    return Finalist(config, timing.seconds, low, high)


def _post_mortem(problem: Problem, trials: Sequence[Trial]) -> str:
    failures = [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    if not failures:
        return f"{problem.key.kernel}: nothing was tried; is the budget zero?"
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(str(f.kind) for f in failures).most_common())
    first = failures[0]
    return (
        f"{problem.key.kernel}: all {len(failures)} configs tried failed ({kinds}). The first: at {first.stage}, "
        f"{first.reason}. `tunewright trials {problem.key.kernel} --failed` lists them all."
    )
