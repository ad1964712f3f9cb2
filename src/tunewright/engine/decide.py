"""The decision: which config wins; on a tie the incumbent stays, then the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tunewright.cases.validation import VARIES
from tunewright.engine.journal import Journal
from tunewright.errors import NothingWorked
from tunewright.measure.race import PROTECTED_ROUNDS, Race
from tunewright.model.decision import Decision, Evidence, Finalist, Gain, Problem
from tunewright.model.trial import Failure, Timing, Trial, median
from tunewright.spaces.config import Config
from tunewright.stats import interval

MAX_FINALISTS = 16
NEAR = 1.25
"""Trials up to this ratio of the best time are raced again: their few samples may be that far off."""

FEW, FAR = 4, 3.0
"""The fastest few are raced again up to this larger ratio: a disturbance may slow down a whole trial."""

MAX_TIES = 8

HOST_CLOCKS = ("thread", "cpu", "wall", "printed")
"""Clocks whose samples are runs; a benchmark of the user's own returns one number for many."""

FEW_RUNS_SPREAD = {1: 1.5, 2: 1.25}
"""How far the time of a config may be from that of one run, or from those of two."""

FinalRace = tuple[Sequence[Config], Race]
"""The configs that were raced, and the race."""

ProgramRace = Callable[[Sequence[Config]], Race]
"""Races the whole program with each of the configs."""


class Adjudicator:
    """Selects the finalists of a search and makes the decision after their race.

    Only configs are decided that were judged in this run. With `bitwise`, only configs count whose results equal the
    incumbent's, or else the default's, bit for bit.
    """

    def __init__(self, problem: Problem, journal: Journal, incumbent: Config | None, *, bitwise: bool = False) -> None:
        self.problem, self.journal, self.incumbent, self.bitwise = problem, journal, incumbent, bitwise

    @property
    def baselines(self) -> tuple[Config | None, Config]:
        """What stays on a tie: the earlier decision, if a complete search made it, then the default."""
        return self.incumbent, self.problem.default

    @property
    def trials(self) -> list[Trial]:
        """The trials that count, one for each config."""
        trials = list(self.journal.known.values())
        return bitwise_equal_trials(self.problem, trials, self.incumbent) if self.bitwise else trials

    @property
    def judged_trials(self) -> list[Trial]:
        """The trials that may decide: failures, and those of configs that were judged in this run."""
        return [trial for trial in self.trials if not trial.works or trial.config in self.journal.judged]

    def finalists(self, *, judged: bool = False) -> tuple[list[Config], list[int]]:
        """Returns the configs to race, and which of them are protected: the incumbent and the default.

        With `judged`, only of those that were judged in this run, if any works.
        """
        trials = self.judged_trials if judged else self.trials
        if judged and not any(trial.works for trial in trials):
            trials = self.trials
        configs = select_finalists(self.problem, trials, self.incumbent)
        return configs, [i for i, config in enumerate(configs) if config in self.baselines]

    def seconds_for(self, configs: Sequence[Config]) -> float:
        """Returns about how long the protected rounds take; a sample is a burst of a millisecond, or two launches."""
        seconds = {trial.config: trial.seconds for trial in self.trials}
        return 2 * PROTECTED_ROUNDS * sum(max(3e-3, 2 * seconds[config]) for config in configs)

    def keep_incumbent(self, reason: str) -> Decision:
        """Returns a decision for the incumbent or the default, because a new config could not be judged."""
        trials = [trial for trial in self.judged_trials if not trial.works or trial.config in self.baselines]
        decision = decide(self.problem, trials, self.incumbent)
        return self._with_trial_count(with_notes(decision, notes=(f"{reason}, so nothing new is chosen",)))

    def _with_trial_count(self, decision: Decision) -> Decision:
        """Sets the number of all trials, also of those that did not count."""
        return with_notes(decision, trials=len(self.journal.trials))

    def decide(self, raced: FinalRace | None = None, program: ProgramRace | None = None) -> Decision:
        """Returns the decision, by the race if there was one; rejects a winner that makes the program slower."""
        trials = self.judged_trials
        decision = decide(self.problem, trials, self.incumbent, raced)
        incumbent = self.incumbent or self.problem.default
        if program is not None and incumbent in _compare(self.problem, trials, raced).places.keys() - {decision.config}:
            program_race = program([incumbent, decision.config])
            decision = with_end_to_end(decision, program_race)
            if program_race.tested and program_race.standings[1].left is not None:
                decision = refuse_winner(self.problem, trials, raced, incumbent, decision)
        if excluded := len(self.journal.known) - len(self.trials):
            decision = with_notes(decision, f"{excluded} configs were excluded: their results differ bit for bit")
        return self._with_trial_count(decision)


def bitwise_equal_trials(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> list[Trial]:
    """Returns failures, and the trials whose results equal the incumbent's, or else the default's, bit for bit.

    If the results of both vary from run to run, only the default remains.
    """
    prints = {trial.config: trial.fingerprint for trial in trials if trial.works}
    stable = [config for config in prints if prints[config] != VARIES]
    reference = next((config for config in (incumbent, problem.default) if config in stable), None)
    equal = {config for config in stable if reference and prints[config] == prints[reference]} or {problem.default}
    return [trial for trial in trials if not trial.works or trial.config in equal]


def select_finalists(problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None) -> list[Config]:
    """Returns the incumbent and the default if they work, and the fastest configs by their trials."""
    timed = {trial.config: trial for trial in trials if trial.works}
    order = sorted(timed.values(), key=lambda trial: (trial.seconds, problem.space.rank(trial.config)))
    limits = [(FAR if position < FEW else NEAR) * order[0].seconds for position in range(len(order))]
    fastest = [trial.config for trial, limit in zip(order, limits, strict=True) if trial.seconds <= limit]
    protected = [config for config in (incumbent, problem.default) if config in timed]
    return list(dict.fromkeys(protected + fastest[:MAX_FINALISTS]))


def decide(
    problem: Problem, trials: Sequence[Trial], incumbent: Config | None = None, raced: FinalRace | None = None
) -> Decision:
    """Returns the fastest config; if it ties with the incumbent or the default, that one stays.

    Compares by the race if there was one, else by the samples of the trials. Among configs that tie, the first in
    canonical order wins, so that two runs with the same measurements choose the same.
    """
    results = _compare(problem, trials, raced)
    baseline = next((config for config in (incumbent, problem.default) if config in results.places), None)
    # Only configs proven faster than the baseline may replace it: a tie with the leader alone does not prove that.
    proven = [
        config for config in results.equal if baseline and (gain := results.gain(baseline, config)) and gain.low > 1
    ]
    best = results.equal if baseline is None else proven or results.equal[:1]
    chosen, notes = min(best, key=problem.space.rank), []
    for config, name in ((incumbent, "earlier decision"), (problem.default, "default")):
        if config is not None and config in results.tied:
            chosen, notes = config, [f"no gain over the {name}"]
            break
    return Decision(problem.key, chosen, _evidence(problem, trials, results, chosen, notes))


def with_notes(decision: Decision, *notes: str, **fields: Any) -> Decision:
    """Returns the decision with more notes, and with other fields of its evidence replaced."""
    assert decision.evidence is not None
    evidence = msgspec.structs.replace(decision.evidence, **{"notes": (*decision.evidence.notes, *notes), **fields})
    return decision.replace(evidence=evidence)


def with_end_to_end(decision: Decision, program_race: Race) -> Decision:
    """Returns the decision with its end-to-end gain: a race of the program with the old config against the new one."""
    gain = Gain(*program_race.ratio(0, 1))
    note = "no gain end to end" if program_race.tested else "the whole program is too slow to run it often enough"
    return with_notes(decision, *([note] if gain.is_inconclusive else []), end_to_end=gain)


def refuse_winner(
    problem: Problem, trials: Sequence[Trial], raced: FinalRace | None, incumbent: Config, decision: Decision
) -> Decision:
    """Returns a decision for the incumbent, because the winner makes the whole program slower."""
    assert decision.evidence is not None
    assert decision.evidence.end_to_end is not None
    gain = decision.evidence.end_to_end
    low, center, high = (f"{1 / bound:.2f}" for bound in (gain.high, gain.ratio, gain.low))
    note = f"{decision.config} is faster alone, but the whole program takes {center} times as long ({low} to {high})"
    evidence = _evidence(problem, trials, _compare(problem, trials, raced), incumbent, [f"{note}: rejected"])
    return Decision(problem.key, incumbent, msgspec.structs.replace(evidence, end_to_end=gain))


def _evidence(
    problem: Problem, trials: Sequence[Trial], results: _Comparison, chosen: Config, notes: Sequence[str]
) -> Evidence:
    timed = {trial.config: trial for trial in trials if trial.works}
    outcome, fingerprint = timed[chosen].outcome, timed[chosen].fingerprint
    assert isinstance(outcome, Timing)
    notes = [*notes, *problem.notes]
    if any(trial.config == problem.default and not trial.works for trial in trials):
        notes.append("the default config does not work here")
    if outcome.is_first and "conditions" not in results.evidence:
        notes.append("its time is that of its first launch, which may contain a compilation; a longer budget tells")
    if fingerprint == VARIES:
        notes.append("its results vary from run to run")
    if results.evidence.get("clock", outcome.clock) == "wall" and problem.key.mode.get("threads") == "1":
        notes.append("it waits or uses several threads, so it is timed by the wall clock; declare threads= if it does")
    best, gain = results.places[chosen], results.gain(problem.default, chosen)
    ties = sorted((results.places[config] for config in results.tied if config != chosen), key=lambda tie: tie.seconds)
    return Evidence(
        seconds=best.seconds,
        low=best.low,
        high=best.high,
        # From the paired ratio: both sides ran in the same rounds, which is not true of their medians.
        default_seconds=best.seconds * gain.ratio if gain else None,
        ties=tuple(msgspec.structs.replace(tie, fingerprint=timed[tie.config].fingerprint) for tie in ties[:MAX_TIES]),
        trials=len(trials),
        failures=sum(isinstance(trial.outcome, Failure) for trial in trials),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=tuple(notes),
        over_default=gain,
        fingerprint=fingerprint,
        **{"clock": outcome.clock, **results.evidence},
    )


class _Comparison(NamedTuple):
    """All configs with their times, those tied with the leader, those as good as it, and gains between configs."""

    places: Mapping[Config, Finalist]
    tied: Sequence[Config]
    equal: Sequence[Config]
    gain: Callable[[Config, Config], Gain | None]
    evidence: Mapping[str, Any]


def _compare(problem: Problem, trials: Sequence[Trial], raced: FinalRace | None) -> _Comparison:
    timed = {trial.config: trial.outcome for trial in trials if isinstance(trial.outcome, Timing)}
    if not timed:
        raise NothingWorked(_describe_failures(problem, trials))
    return _compare_trials(timed) if raced is None else _compare_race(*raced)


def _compare_trials(timed: Mapping[Config, Timing]) -> _Comparison:
    places = {config: _finalist(config, timing) for config, timing in timed.items()}
    leader = min(places.values(), key=lambda finalist: finalist.seconds)
    # Nobody knows how much faster a config is without the compilation in its first launch.
    tied = [config for config, own in places.items() if own.low <= leader.high or timed[config].is_first]
    equal = [config for config in tied if places[config].seconds == leader.seconds]

    def gain(slow: Config, fast: Config) -> Gain | None:
        if (slower := places.get(slow)) is None or not timed[slow].is_comparable(timed[fast]):
            return None
        faster = places[fast]
        return Gain(slower.seconds / faster.seconds, slower.low / faster.high, slower.high / faster.low)

    near = [finalist for finalist in places.values() if finalist.seconds <= NEAR * leader.seconds]
    return _Comparison(places, tied, equal, gain, {"resolution": 1.0 if len(near) > 1 else None})


def _compare_race(configs: Sequence[Config], race: Race) -> _Comparison:
    standings = dict(zip(configs, race.standings, strict=True))
    places = {
        config: _finalist(config, Timing(standing.samples))
        for config, standing in standings.items()
        if standing.samples
    }
    tied = [configs[i] for i in race.ties]
    number = {config: i for i, config in enumerate(configs)}

    def gain(slow: Config, fast: Config) -> Gain | None:
        if slow not in places:
            return None
        return Gain(1.0, 1.0, 1.0) if slow == fast else Gain(*race.ratio(number[slow], number[fast]))

    # The leader comes first: it is chosen if no config is proven faster than the baseline.
    equal = sorted((configs[i] for i in race.ties if race.equal(i)), key=lambda config: number[config] != race.leader)
    evidence: dict[str, Any] = {"resolution": race.resolution, "conditions": race.conditions}
    if race.clock:
        evidence["clock"] = race.clock
    return _Comparison(places, tied, equal, gain, evidence)


def _finalist(config: Config, timing: Timing) -> Finalist:
    scale = timing.seconds / median(timing.samples)
    low, high = interval(timing.samples)
    spread = FEW_RUNS_SPREAD.get(len(timing.samples), 1.0) if timing.clock in HOST_CLOCKS else 1.0
    low, high = low / spread, high * spread
    return Finalist(config, timing.seconds, low * scale, high * scale)


def _describe_failures(problem: Problem, trials: Sequence[Trial]) -> str:
    failures = [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    if not failures:
        return f"{problem.key.kernel}: nothing was tried; is the budget zero?"
    counts = Counter(str(failure.kind) for failure in failures)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts, key=lambda kind: (-counts[kind], kind)))
    first = failures[0]
    return (
        f"{problem.key.kernel}: all {len(failures)} configs tried failed ({kinds}). The first: at {first.stage}, "
        f"{first.reason}. `tunewright trials {problem.key.kernel} --failed` lists them; the next run tries again."
    )
