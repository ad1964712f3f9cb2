"""Re-races on arrival: the config chosen elsewhere, the next best and the default, raced on this machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cases.inputs import Array, Inputs
from tunewright.engine.decide import FinalRace, bitwise_equal_trials, decide, with_notes
from tunewright.errors import NothingWorked, TunewrightError, WireError
from tunewright.kernel.tuned import Tuned
from tunewright.measure.race import PROTECTED_ROUNDS, Race, RaceOptions
from tunewright.model.decision import Decision, Gain, Problem
from tunewright.model.event import TrialFinished
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Trial, TrialRequest
from tunewright.pools.kernel_loader import load_target
from tunewright.ports import plugins
from tunewright.ports.pool import Pool
from tunewright.session import Session
from tunewright.shipping.sampling import CONFIDENCE, sign_test_threshold
from tunewright.spaces.config import Config
from tunewright.stores import serialization, transcripts
from tunewright.stores.transcripts import Transcript, is_module, load_transcript
from tunewright.version import __version__

MAX_SLOWDOWN = 0.05
"""How much slower than another a config may be: smaller differences can come from where arrays lie in memory."""

ARRIVAL_RACE = RaceOptions(rounds=60, seconds=5.0)
"""Options of a race on arrival."""

SAMPLE_RACE = RaceOptions(margin=0.02, rounds=24, seconds=5.0)
"""Options of a race in a sample: just enough to see what exceeds MAX_SLOWDOWN, so that more entries are raced."""

CONFIRMATION_RACES = 3
"""Races that must confirm a slowdown, each in a worker of its own where workers are processes."""

IGNORED_KEY_FIELDS = ("device", "toolchain")
"""Fields of a key in which a decision may differ from ours and still be raced here."""


class CannotRace(TunewrightError):
    """Raised when an entry cannot be raced here; the message says why."""


class ReraceVerdict(StrEnum):
    """The verdict on a decision on arrival."""

    STANDS = "stands"
    HEALED = "healed"  # another config of its race is faster here, by more than MAX_SLOWDOWN
    BAD = "bad"  # it fails, is wrong, or is slower than the default by more than MAX_SLOWDOWN
    UNRACED = "not raced"


class ReraceResult(msgspec.Struct, frozen=True):
    """A shipped decision, the verdict on it and the reason; `new_decision` is for this machine's key.

    `transcript` is that of the new race, `slower` the shipped config's time over that of the winner, `raced` the number
    of configs tried.
    """

    decision: Decision
    verdict: ReraceVerdict
    reason: str = ""
    new_decision: Decision | None = None
    transcript: Transcript | None = None
    slower: Gain | None = None
    raced: int = 0

    @property
    def regressed(self) -> bool:
        """Whether the shipped decision must not be used here."""
        return self.verdict in (ReraceVerdict.HEALED, ReraceVerdict.BAD)


@dataclass(frozen=True)
class RaceSetup:
    """A kernel, its arguments, and the configs to race: the chosen one first."""

    kernel: Tuned
    cases: tuple[Inputs, ...]
    problem: Problem
    configs: list[Config]


@dataclass(frozen=True)
class ArrivalCheck:
    """Races the decisions of a `source` again in a session; `kernels` are the known ones by name.

    Other kernels are loaded from the target in their transcript: modules only, unless files of this machine are
    `trusted` too. `level` is the chance of a false alarm for one entry.
    """

    source: Any
    session: Session
    kernels: Mapping[str, Tuned] = field(default_factory=dict)
    top: int = 3
    level: float = 1 - CONFIDENCE
    race_options: RaceOptions = ARRIVAL_RACE
    trusted: bool = False

    def make_setup(self, decision: Decision) -> RaceSetup:
        """Returns what a race of the decision needs; raises CannotRace if it is impossible here."""
        if decision.evidence is not None and decision.evidence.rule is not None:
            raise CannotRace("it is a rule over sizes, which has no race of its own")
        transcript = load_transcript(self.source, decision.key)
        transcript = transcript if transcript is not None and transcript.is_consistent else None
        kernel = self.find_kernel(decision.key.kernel, transcript)
        cases = _cases(kernel, transcript, decision.key)
        problem = kernel.problem(_make_arguments(kernel, cases[0]))
        differences = problem.key.differences(decision.key)
        mismatches = [
            f"{name} is {mine} here, {theirs} there"
            for name, (mine, theirs) in differences.items()
            if name.partition(".")[0] not in IGNORED_KEY_FIELDS
        ]
        if mismatches:
            raise CannotRace(f"it was decided for another kernel: {', '.join(mismatches)}")
        if decision.config not in problem.space:
            raise CannotRace(f"{decision.config} is no longer in the space")
        ties = decision.evidence.ties if decision.evidence else ()
        ranked = dict.fromkeys([*(transcript.ranking() if transcript else ()), *(tie.config for tie in ties)])
        others = [config for config in ranked if config != decision.config and config in problem.space]
        configs = dict.fromkeys([decision.config, *others[: self.top], problem.default])
        return RaceSetup(kernel, cases, problem, list(configs))

    def find_kernel(self, name: str, transcript: Transcript | None) -> Tuned:
        """Returns the kernel of that name: a known one, or the one that its transcript names."""
        if name in self.kernels:
            return self.kernels[name]
        target = transcript.target if transcript else ""
        place = target.rpartition(":")[0]
        # A file in the working folder would be run in place of a module of its name.
        if not target or not (self.trusted or (is_module(place) and not Path(place).exists())):
            raise CannotRace("its kernel is unknown here; give it as FILE.py:NAME")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what a program prints is not our answer
                kernel = load_target(target)
        except Exception as error:
            raise CannotRace(f"its kernel is not found: {type(error).__name__}: {error}") from error
        if not isinstance(kernel, Tuned):
            raise CannotRace(f"{target} is a {type(kernel).__name__}, not a kernel")
        kernel.using(self.session)
        return kernel

    def rerace(self, decision: Decision) -> ReraceResult:
        """Races a decision again, and confirms a slowdown by further races."""
        try:
            return self._judge(decision, self.make_setup(decision))
        except TunewrightError as error:
            return ReraceResult(decision, ReraceVerdict.UNRACED, str(error))

    def _judge(self, decision: Decision, setup: RaceSetup) -> ReraceResult:
        attempt: Any = setup.kernel.attempt(setup.cases)
        trials = self._trials(attempt, setup.configs)
        chosen = trials[decision.config]
        if not chosen.works:  # once more: the cause may not have been its own
            chosen = trials[decision.config] = attempt(TrialRequest(decision.config))
        valid = list(trials.values())
        if self.session.settings.deterministic:
            valid = bitwise_equal_trials(setup.problem, valid, decision.config)
        working = [trial.config for trial in valid if trial.works]
        stands = ReraceResult(decision, ReraceVerdict.STANDS, raced=len(setup.configs))
        if decision.config not in working:
            outcome = chosen.outcome
            varies = "its results vary from run to run"
            reason = f"{outcome.kind}: {outcome.reason}" if isinstance(outcome, Failure) else varies
            with contextlib.suppress(CannotRace):  # this one is bad even if the others cannot be raced
                stands = self._with_new_decision(
                    stands, setup, valid, self._race(attempt, working, setup.problem.default)
                )
            return msgspec.structs.replace(stands, verdict=ReraceVerdict.BAD, reason=reason)
        raced = self._race(attempt, working, setup.problem.default)
        if raced is not None and not raced[1].standings[0].samples:
            raced = self._race(attempt, working, setup.problem.default)
        stands = self._with_new_decision(stands, setup, valid, raced)
        return self._compare(stands, attempt, raced, setup.problem) if raced else stands

    def _with_new_decision(
        self, result: ReraceResult, setup: RaceSetup, trials: list[Trial], raced: FinalRace | None
    ) -> ReraceResult:
        """Adds the decision of this machine, by the rules that end a search; the shipped config stays on a tie."""
        before = result.decision
        try:
            decision = decide(setup.problem, trials, before.config, raced)
        except NothingWorked:
            return result
        note = f"{len(trials)} configs raced again on arrival"
        if fields := ", ".join(setup.problem.key.differences(before.key)):
            note += f"; {before.config} came with another {fields}"
        seed = self.session.settings.seed
        decision = with_notes(decision, note, strategy="re-race", seed=seed, versions={"tunewright": __version__})
        attempt = setup.kernel.attempt(setup.cases)
        transcript = (
            transcripts.make_transcript(setup.problem, decision, raced, before.config, attempt) if raced else None
        )
        return msgspec.structs.replace(result, new_decision=decision, transcript=transcript)

    def _compare(self, stands: ReraceResult, attempt: Any, raced: FinalRace, problem: Problem) -> ReraceResult:
        """Judges a config that works by how much slower it is than the leader and the default."""
        configs, race = raced
        if not race.standings[0].samples:
            return msgspec.structs.replace(stands, verdict=ReraceVerdict.BAD, reason="it failed in two races")
        slower = Gain(*race.ratio(0, race.leader)) if race.leader else None
        if slower is None or slower.low <= 1 + MAX_SLOWDOWN:
            return stands
        leader = configs[race.leader]
        if not self._is_confirmed(attempt, [configs[0], leader]):
            return msgspec.structs.replace(stands, reason=f"{leader} seemed faster, which was not confirmed")
        default = configs.index(problem.default) if problem.default in configs else 0
        is_worse = bool(default and race.standings[default].samples) and race.ratio(0, default)[1] > 1 + MAX_SLOWDOWN
        reason = f"it takes {slower.ratio:.2f} times as long as {leader}" + (", and longer than the default" * is_worse)
        verdict = ReraceVerdict.BAD if is_worse else ReraceVerdict.HEALED
        return msgspec.structs.replace(stands, verdict=verdict, reason=reason, slower=slower)

    @cached_property
    def _pool(self) -> Pool:
        settings = self.session.settings
        pool: Pool = plugins.load("pools", settings.pool_name)(settings.width)
        return pool

    def _trials(self, attempt: Any, configs: Sequence[Config]) -> dict[Config, Trial]:
        """Builds, verifies and times each config by itself."""
        try:
            trials = {trial.config: trial for trial in self._pool.run(attempt, map(TrialRequest, configs))}
        finally:
            self._pool.close()
        for trial in trials.values():
            self.session.emit(TrialFinished(trial))
        return {config: trials[config] for config in configs}

    def _race(self, attempt: Any, configs: list[Config], default: Config) -> FinalRace | None:
        """Races the configs; None if there is only one."""
        if len(configs) < 2:
            return None
        protected = [i for i, config in enumerate(configs) if i == 0 or config == default]
        options = msgspec.structs.replace(self.race_options, seed=self.session.settings.seed)
        race: Race | None = attempt.race(configs, options, protected)
        if race is None or not race.tested:
            raise CannotRace("its race was interrupted" if race is None else "its race was too short to tell")
        return configs, race

    def _is_confirmed(self, attempt: Any, pair: Sequence[Config]) -> bool:
        """Whether the first is slower than the second by the sign test, at the level of this check."""
        counts = self.count_slower_rounds(attempt, pair)
        return counts is not None and counts[0] >= sign_test_threshold(counts[1], self.level)

    def count_slower_rounds(self, attempt: Any, pair: Sequence[Config]) -> tuple[int, int] | None:
        """Returns in how many rounds of new races the first exceeded MAX_SLOWDOWN, and how many rounds there were.

        Their number is fixed in advance, and no distribution of times is assumed. None if a race was interrupted.
        """
        slower = rounds = 0
        for number in range(1, CONFIRMATION_RACES + 1):
            seed = self.session.settings.seed + number
            options = RaceOptions(rounds=PROTECTED_ROUNDS, seconds=self.race_options.seconds, seed=seed)
            race: Race | None = attempt.race(pair, options, (0, 1))
            if race is None or any(len(standing.samples) < PROTECTED_ROUNDS for standing in race.standings):
                return None
            times = [standing.samples[:PROTECTED_ROUNDS] for standing in race.standings]
            slower += sum(first > (1 + MAX_SLOWDOWN) * second for first, second in zip(*times, strict=True))
            rounds += PROTECTED_ROUNDS
        return slower, rounds


def _cases(kernel: Tuned, transcript: Transcript | None, key: Key) -> tuple[Inputs, ...]:
    """Returns recipes for the arguments: those of the transcript, else by the sizes in the key."""
    if transcript is not None and transcript.recipe:
        try:
            if cases := serialization.decode(transcript.recipe, tuple[Inputs, ...]):
                return cases
        except WireError as error:
            raise CannotRace(f"its arguments cannot be made again: {error}") from error
    try:
        return kernel.cases_like(_example(kernel, key.signature))
    except TunewrightError:
        raise
    except Exception as error:
        raise CannotRace(f"making its arguments raised {type(error).__name__}: {error}") from error


def _example(kernel: Tuned, signature: Signature) -> list[Any]:
    """Returns arguments of the sizes and dtypes that a key names."""
    if kernel.declaration.inputs is not None:
        return kernel.example(signature.dims)
    recipe = Inputs.of_dims(kernel.parameters, signature.dims, kernel.declaration.dtype)
    args = tuple(
        msgspec.structs.replace(arg, dtype=text.partition("[")[0]) if isinstance(arg, Array) else arg
        for arg, text in zip(recipe.args, signature.args, strict=True)
    )
    return msgspec.structs.replace(recipe, args=args).make()


def _make_arguments(kernel: Tuned, recipe: Inputs) -> Sequence[Any]:
    try:
        return list(kernel.make(recipe))
    except Exception as error:
        raise CannotRace(f"making its arguments raised {type(error).__name__}: {error}") from error
