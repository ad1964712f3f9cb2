"""Decide: finalists raced against each other and the default; on a tie the incumbent stays, then the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

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
    timed = {trial.config: trial.outcome for trial in trials if isinstance(trial.outcome, Timing)}
    if not timed:
        raise NothingWorked(_post_mortem(problem, trials))
    field = _by_trials(timed) if raced is None else _by_race(*raced)
    chosen, notes = min(field.equal, key=problem.space.rank), []
    for config, whom in ((incumbent, "earlier decision"), (problem.default, "default")):
        if config in field.tied:
            chosen, notes = config, [f"no gain over the {whom}"]
            break
    if problem.default not in timed:
        notes.append("the default config does not work here")
    others = [field.places[config] for config in field.tied if config != chosen]
    best, slower = field.places[chosen], field.ratios.get(problem.default)
    evidence = Evidence(
        seconds=best.seconds,
        low=best.low,
        high=best.high,
        # Paired: both sides of a ratio have met the same rounds, their medians have not.
        default_seconds=best.seconds * slower / field.ratios[chosen] if slower else None,
        ties=tuple(sorted(others, key=lambda finalist: finalist.seconds)[:MOST_FINALISTS]),
        trials=len(trials),
        failures=sum(isinstance(trial.outcome, Failure) for trial in trials),
        clock=timed[chosen].clock,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(notes),
    )
    return Decision(problem.key, chosen, evidence)


class _Field(NamedTuple):
    """Who ran: places, times over the leader's, who cannot be told from the leader, and who is as good as it."""

    places: dict[Config, Finalist]
    ratios: dict[Config, float]
    tied: list[Config]
    equal: list[Config]


def _by_trials(timed: Mapping[Config, Timing]) -> _Field:
    places = {config: _finalist(config, timing.samples) for config, timing in timed.items()}
    leader = min(places.values(), key=lambda finalist: finalist.seconds)
    ratios = {config: finalist.seconds / leader.seconds for config, finalist in places.items()}
    tied = [config for config, finalist in places.items() if finalist.low <= leader.high]
    return _Field(places, ratios, tied, [config for config in tied if ratios[config] == 1])


def _by_race(configs: Sequence[Config], race: Race) -> _Field:
    standings = dict(zip(configs, race.standings, strict=True))
    places = {config: _finalist(config, standing.samples) for config, standing in standings.items()}
    ratios = {config: standing.ratio for config, standing in standings.items()}
    tied = [configs[i] for i in race.ties]
    return _Field(places, ratios, tied, [config for config in tied if ratios[config] <= 1 + race.margin])


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
