"""Decide: finalists raced against each other and the default; on a tie the incumbent stays, then the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tunewright.cases.exam import VARIES
from tunewright.engine.journal import Journal
from tunewright.errors import NothingWorked
from tunewright.measure.race import RECEIPT, Race
from tunewright.measure.stats import interval
from tunewright.model.decision import Decision, Evidence, Finalist, Gain, Problem
from tunewright.model.trial import Failure, Timing, Trial, median
from tunewright.spaces.config import Config

MOST_FINALISTS = 16
NEAR = 1.25
"""How many times the best time a trial may have taken to be raced again: its few samples may be that far off."""

FEW, FAR = 4, 3.0
"""The fastest few are raced again even if they took that many times the best time: a bad moment hits a whole trial."""

MOST_TIES = 8

Raced = tuple[Sequence[Config], Race]
"""Who ran, and how."""

Program = Callable[[Sequence[Config]], Race]
"""The whole program, run with each of the configs in turn, and raced."""


class Verdict:
    """What the trials of a search come to: who goes to the final, and what is decided after it.

    If it must be `bitwise` the same, only configs count whose results are those of the incumbent, else of the default.
    """

    def __init__(self, problem: Problem, journal: Journal, incumbent: Config | None, *, bitwise: bool = False) -> None:
        self.problem, self.incumbent = problem, incumbent
        self._journal, self._bitwise = journal, bitwise

    @property
    def trials(self) -> list[Trial]:
        """The trials that count."""
        trials = self._journal.trials
        return alike(self.problem, trials, self.incumbent) if self._bitwise else trials

    def finalists(self) -> tuple[list[Config], list[int]]:
        """Who is raced at the end, and which of them are there to be compared with."""
        configs = finalists(self.problem, self.trials, self.incumbent)
        return configs, [i for i, config in enumerate(configs) if config in (self.incumbent, self.problem.default)]

    def seconds_for(self, configs: Sequence[Config]) -> float:
        """What the rounds of a receipt will take, roughly: visits are bursts of a millisecond, or two launches."""
        seconds = {trial.config: trial.seconds for trial in self.trials}
        return 2 * RECEIPT * sum(max(3e-3, 2 * seconds[config]) for config in configs)

    def stands(self, why: str) -> Decision:
        """What stood before, because something new could not be judged."""
        stood = (self.incumbent, self.problem.default)
        safe = [trial for trial in self.trials if not trial.works or trial.config in stood]
        decision = decide(self.problem, safe, self.incumbent)
        return self._counted(noted(decision, notes=(f"{why}, so nothing new is chosen",)))

    def _counted(self, decision: Decision) -> Decision:
        """The decision with all that was tried, also what did not count."""
        return noted(decision, trials=len(self._journal.trials))

    def decide(self, raced: Raced | None = None, program: Program | None = None) -> Decision:
        """The decision, by the race if there was one; a winner that makes the whole program slower is refused."""
        trials = self.trials
        decision = decide(self.problem, trials, self.incumbent, raced)
        stood = self.incumbent or self.problem.default
        if program is not None and decision.config != stood and stood in {t.config for t in trials if t.works}:
            whole = program([stood, decision.config])
            decision = weighed(decision, whole)
            if whole.tested and whole.standings[1].left is not None:
                decision = refused(self.problem, trials, raced, stood, decision)
        if left := len(self._journal.trials) - len(trials):
            decision = noted(decision, f"{left} configs were left out: their results differ, bit for bit")
        return self._counted(decision)


def alike(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> list[Trial]:
    """Failures, and the trials whose results are those of the incumbent, else of the default, bit for bit.

    Where neither gives the same twice, the default alone: nothing else may decide over bits.
    """
    prints = {trial.config: trial.fingerprint for trial in trials if trial.works}
    steady = [config for config in prints if prints[config] != VARIES]
    model = next((config for config in (incumbent, problem.default) if config in steady), None)
    same = {config for config in steady if model and prints[config] == prints[model]} or {problem.default}
    return [trial for trial in trials if not trial.works or trial.config in same]


def finalists(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> list[Config]:
    """The fastest by their trials, and always the incumbent and the default if they work."""
    timed = {trial.config: trial for trial in trials if trial.works}
    order = sorted(timed.values(), key=lambda trial: (trial.seconds, problem.space.rank(trial.config)))
    reach = [(FAR if place < FEW else NEAR) * order[0].seconds for place in range(len(order))]
    near = [trial.config for trial, most in zip(order, reach, strict=True) if trial.seconds <= most][:MOST_FINALISTS]
    standing = [config for config in (incumbent, problem.default) if config in timed]
    return list(dict.fromkeys(standing + near))


def decide(
    problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None, raced: Raced | None = None
) -> Decision:
    """The fastest config, unless it cannot be told from the incumbent or the default, which then stays.

    Judged by a race if there was one, else by the samples of the trials. Among configs that tie, the first in
    canonical order is taken, so that two runs that see the same choose the same.
    """
    field = _field(problem, trials, raced)
    stood = next((config for config in (incumbent, problem.default) if config in field.places), None)
    # Of those as good as the leader, only who is faster than what stood: else a tie of a tie would replace it.
    proven = [one for one in field.equal if stood and (gain := field.gain(stood, one)) and gain.low > 1]
    best = field.equal if stood is None else proven or field.equal[:1]
    chosen, notes = min(best, key=problem.space.rank), []
    for config, whom in ((incumbent, "earlier decision"), (problem.default, "default")):
        if config is not None and config in field.tied:
            chosen, notes = config, [f"no gain over the {whom}"]
            break
    return Decision(problem.key, chosen, _evidence(problem, trials, field, chosen, notes))


def noted(decision: Decision, *also: str, **more: Any) -> Decision:
    """The decision with more to say."""
    assert decision.evidence is not None
    evidence = msgspec.structs.replace(decision.evidence, **{"notes": (*decision.evidence.notes, *also), **more})
    return decision.having(evidence=evidence)


def weighed(decision: Decision, whole: Race) -> Decision:
    """The decision with what it did to the whole program: a race of what stood before against the winner."""
    gain = Gain(*whole.ratio(0, 1))
    said = "no gain end to end" if whole.tested else "the whole program is too slow to be run often enough to tell"
    return noted(decision, *([said] if gain.wash else []), end_to_end=gain)


def refused(
    problem: Problem, trials: Sequence[Trial], raced: Raced | None, stood: Config, decision: Decision
) -> Decision:
    """What stood before, because the whole program is slower with the winner; the evidence says so."""
    assert decision.evidence is not None
    assert decision.evidence.end_to_end is not None
    whole = decision.evidence.end_to_end
    low, centre, high = (f"{1 / bound:.2f}" for bound in (whole.high, whole.ratio, whole.low))
    note = f"{decision.config} is faster alone, but with it the whole takes {centre} times as long ({low} to {high})"
    evidence = _evidence(problem, trials, _field(problem, trials, raced), stood, [f"{note}: refused"])
    return Decision(problem.key, stood, msgspec.structs.replace(evidence, end_to_end=whole))


def _evidence(
    problem: Problem, trials: Sequence[Trial], field: _Field, chosen: Config, notes: Sequence[str]
) -> Evidence:
    timed = {trial.config: trial for trial in trials if trial.works}
    outcome, prints = timed[chosen].outcome, timed[chosen].fingerprint
    assert isinstance(outcome, Timing)
    said = list(notes)
    if problem.default not in timed:
        said.append("the default config does not work here")
    if prints == VARIES:
        said.append("its results vary from run to run")
    best, gain = field.places[chosen], field.gain(problem.default, chosen)
    ties = sorted((field.places[one] for one in field.tied if one != chosen), key=lambda finalist: finalist.seconds)
    return Evidence(
        seconds=best.seconds,
        low=best.low,
        high=best.high,
        # Paired: both sides of a ratio have met the same rounds, their medians have not.
        default_seconds=best.seconds * gain.ratio if gain else None,
        ties=tuple(msgspec.structs.replace(one, fingerprint=timed[one.config].fingerprint) for one in ties[:MOST_TIES]),
        trials=len(trials),
        failures=sum(isinstance(trial.outcome, Failure) for trial in trials),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(said),
        over_default=gain,
        fingerprint=prints,
        **{"clock": outcome.clock, **field.measured},
    )


class _Field(NamedTuple):
    """Who ran: places, who cannot be told from the leader, who is as good as it, and gains with their intervals."""

    places: Mapping[Config, Finalist]
    tied: Sequence[Config]
    equal: Sequence[Config]
    gain: Callable[[Config, Config], Gain | None]
    measured: Mapping[str, Any]


def _field(problem: Problem, trials: Sequence[Trial], raced: Raced | None) -> _Field:
    timed = {trial.config: trial.outcome for trial in trials if isinstance(trial.outcome, Timing)}
    if not timed:
        raise NothingWorked(_post_mortem(problem, trials))
    return _by_trials(timed) if raced is None else _by_race(*raced)


def _by_trials(timed: Mapping[Config, Timing]) -> _Field:
    places = {config: _finalist(config, timing) for config, timing in timed.items()}
    leader = min(places.values(), key=lambda finalist: finalist.seconds)
    tied = [config for config, finalist in places.items() if finalist.low <= leader.high]
    equal = [config for config in tied if places[config].seconds == leader.seconds]

    def gain(slow: Config, fast: Config) -> Gain | None:
        if (one := places.get(slow)) is None:
            return None
        other = places[fast]
        return Gain(one.seconds / other.seconds, one.low / other.high, one.high / other.low)

    near = [finalist for finalist in places.values() if finalist.seconds <= NEAR * leader.seconds]
    return _Field(places, tied, equal, gain, {"resolution": 1.0 if len(near) > 1 else None})


def _by_race(configs: Sequence[Config], race: Race) -> _Field:
    standings = dict(zip(configs, race.standings, strict=True))
    places = {config: _finalist(config, Timing(one.samples)) for config, one in standings.items() if one.samples}
    tied = [configs[i] for i in race.ties]
    number = {config: i for i, config in enumerate(configs)}

    def gain(slow: Config, fast: Config) -> Gain | None:
        if slow not in places:
            return None
        return Gain(1.0, 1.0, 1.0) if slow == fast else Gain(*race.ratio(number[slow], number[fast]))

    # The leader first: it is chosen where none of them was shown to be faster than what stood.
    equal = sorted((configs[i] for i in race.ties if race.equal(i)), key=lambda config: number[config] != race.leader)
    said = {"resolution": race.resolution, "conditions": race.conditions} | (
        {"clock": race.clock} if race.clock else {}
    )
    return _Field(places, tied, equal, gain, said)


def _finalist(config: Config, timing: Timing) -> Finalist:
    scale = timing.seconds / median(timing.samples)
    low, high = interval(timing.samples)
    return Finalist(config, timing.seconds, low * scale, high * scale)


def _post_mortem(problem: Problem, trials: Sequence[Trial]) -> str:
    failures = [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    if not failures:
        return f"{problem.key.kernel}: nothing was tried; is the budget zero?"
    counted = Counter(str(failure.kind) for failure in failures)
    kinds = ", ".join(f"{counted[kind]} {kind}" for kind in sorted(counted, key=lambda kind: (-counted[kind], kind)))
    first = failures[0]
    return (
        f"{problem.key.kernel}: all {len(failures)} configs tried failed ({kinds}). The first: at {first.stage}, "
        f"{first.reason}. `tunewright trials {problem.key.kernel} --failed` lists them; the next run tries again."
    )
