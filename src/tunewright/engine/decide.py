"""Decide: finalists raced against each other and the default; on a tie the incumbent stays, then the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from tunewright.errors import NothingWorked
from tunewright.measure.race import Race
from tunewright.measure.stats import interval
from tunewright.model.config import Config
from tunewright.model.decision import Decision, Evidence, Finalist, Problem
from tunewright.model.trial import Failure, Timing, Trial, median

MOST_FINALISTS = 8
NEAR = 2.0
"""How many times the best time a trial may have taken to be raced again: clocks and neighbours change that much."""


def finalists(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> list[Config]:
    """Who is raced at the end: the fastest by their trials, and always the incumbent and the default if they work."""
    timed = {trial.config: trial for trial in trials if isinstance(trial.outcome, Timing)}
    order = sorted(timed.values(), key=lambda trial: (trial.seconds, problem.space.rank(trial.config)))
    near = [trial.config for trial in order if trial.seconds <= NEAR * order[0].seconds][:MOST_FINALISTS]
    standing = [config for config in (incumbent, problem.default) if config in timed]
    return list(dict.fromkeys(standing + near))


def decide(
    problem: Problem,
    trials: Sequence[Trial],
    incumbent: Config | None = None,
    raced: tuple[Sequence[Config], Race] | None = None,
) -> Decision:
    """The fastest config, unless it cannot be told from the incumbent or the default, which then stays.

    Judged by a race if there was one, else by the samples of the trials. Among configs that tie, the first in
    canonical order is taken, so that two runs that see the same choose the same.
    """
    timed = [(trial, trial.outcome) for trial in trials if isinstance(trial.outcome, Timing)]
    if not timed:
        raise NothingWorked(_post_mortem(problem, trials))
    if raced is None:
        field = {trial.config: _finalist(trial.config, timing.samples) for trial, timing in timed}
        leader = min(field.values(), key=lambda f: (f.seconds, problem.space.rank(f.config)))
        tied = [config for config, finalist in field.items() if finalist.low <= leader.high]
        equal = [config for config in tied if field[config].seconds == leader.seconds]
    else:
        configs, race = raced
        field = {c: _finalist(c, s.samples) for c, s in zip(configs, race.standings, strict=True)}
        tied = [configs[i] for i in race.ties]
        equal = [configs[i] for i in race.ties if race.standings[i].ratio <= 1 + race.margin]
    chosen = min(equal, key=problem.space.rank)
    notes = []
    for config, note in (
        (incumbent, "no gain over the earlier decision"),
        (problem.default, "no gain over the default"),
    ):
        if config in tied:
            chosen, notes = config, [note]
            break
    if problem.default not in {trial.config for trial, _ in timed}:
        notes.append("the default config does not work here")
    default, best = field.get(problem.default), field[chosen]
    evidence = Evidence(
        seconds=best.seconds,
        low=best.low,
        high=best.high,
        default_seconds=default.seconds if default else None,
        ties=tuple(sorted((field[c] for c in tied if c != chosen), key=lambda f: f.seconds)[:MOST_FINALISTS]),
        trials=len(trials),
        failures=sum(isinstance(trial.outcome, Failure) for trial in trials),
        clock=timed[0][1].clock,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(notes),
    )
    return Decision(problem.key, chosen, evidence)


def _finalist(config: Config, samples: Sequence[float]) -> Finalist:
    low, high = interval(samples)
    return Finalist(config, median(samples), low, high)


def _post_mortem(problem: Problem, trials: Sequence[Trial]) -> str:
    failures = [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    if not failures:
        return f"{problem.key.kernel}: nothing was tried; is the budget zero?"
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(str(f.kind) for f in failures).most_common())
    first = failures[0]
    return (
        f"{problem.key.kernel}: all {len(failures)} configs tried failed ({kinds}). The first: at {first.stage}, "
        f"{first.reason}. `tunewright trials {problem.key.kernel} --failed` lists them; the next run tries again."
    )
