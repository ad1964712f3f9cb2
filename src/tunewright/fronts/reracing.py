"""Reracing: what was decided elsewhere, raced again here: the chosen config, the next best, and the default."""

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
from tunewright.engine.decide import Raced, alike, decide, noted
from tunewright.errors import NothingWorked, TunewrightError, WireError
from tunewright.fronts.tuned import Tuned
from tunewright.measure.race import RECEIPT, Race, Terms
from tunewright.model.decision import Decision, Gain, Problem
from tunewright.model.event import Tried
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.model.trial import Entry, Failure, Trial
from tunewright.pools.loading import find
from tunewright.ports import plugins
from tunewright.ports.pool import Pool
from tunewright.report.sampling import SURE, needed
from tunewright.session import Session
from tunewright.sharing import transcripts, wire
from tunewright.sharing.transcripts import Transcript, is_module, transcript_of
from tunewright.spaces.config import Config
from tunewright.version import __version__

WORSE = 0.05
"""How much slower than another a config may have become: below that, where arrays lie in memory can be the cause."""

TERMS = Terms(rounds=60, seconds=5.0)
"""What one race on arrival may cost."""

BRIEF = Terms(margin=0.02, rounds=24, seconds=5.0)
"""The same in a sample: enough to see what is worse than may be, so that more entries are seen."""

AGAIN = 3
"""Races that must confirm a suspicion, each in a worker of its own where workers are processes."""

MAY_DIFFER = ("device", "toolchain")
"""Fields of a key in which a decision may differ from ours and still be raced here."""


class CannotRace(TunewrightError):
    """An entry that cannot be raced here; the message says why."""


class Fate(StrEnum):
    """What became of a decision on arrival."""

    STANDS = "stands"
    HEALED = "healed"  # another of its race is faster here, by more than may be
    BAD = "bad"  # it fails, is wrong, or is slower than the default, by more than may be
    UNRACED = "not raced"


class Rerace(msgspec.Struct, frozen=True):
    """A decision, what became of it, and why in words; `found` is what is decided here, for this machine's key.

    `transcript` is that of the race it was found by, `slower` its time over that of who beat it, `raced` how many
    configs were tried.
    """

    decision: Decision
    fate: Fate
    reason: str = ""
    found: Decision | None = None
    transcript: Transcript | None = None
    slower: Gain | None = None
    raced: int = 0

    @property
    def regressed(self) -> bool:
        """Whether it must not be used here."""
        return self.fate in (Fate.HEALED, Fate.BAD)


@dataclass(frozen=True)
class Track:
    """A kernel, arguments, and the configs to be raced on them: the chosen one first."""

    kernel: Tuned
    cases: tuple[Inputs, ...]
    problem: Problem
    configs: list[Config]


@dataclass(frozen=True)
class Arrival:
    """Decisions of a `source`, raced again in a session; `kernels` are those at hand by name.

    Others are found where their transcripts say: modules only, unless files of this machine are `trusted` too. `level`
    is the chance that a healthy entry is found slower: an alarm in any of n is rarer than n times that.
    """

    source: Any
    session: Session
    kernels: Mapping[str, Tuned] = field(default_factory=dict)
    top: int = 3
    level: float = 1 - SURE
    terms: Terms = TERMS
    trusted: bool = False

    def track(self, decision: Decision) -> Track:
        """Where a decision can be raced; CannotRace if nowhere."""
        told = transcript_of(self.source, decision.key)
        told = told if told is not None and told.sound else None
        kernel = self.kernel(decision.key.kernel, told)
        cases = _cases(kernel, told, decision.key)
        problem = kernel.problem(_made(kernel, cases[0]))
        differences = problem.key.differences(decision.key)
        if strange := {name: pair for name, pair in differences.items() if name.partition(".")[0] not in MAY_DIFFER}:
            said = ", ".join(f"{name} is {mine} here, {theirs} there" for name, (mine, theirs) in strange.items())
            raise CannotRace(f"it was decided for another kernel: {said}")
        if decision.config not in problem.space:
            raise CannotRace(f"{decision.config} is no longer in the space")
        ties = decision.evidence.ties if decision.evidence else ()
        rivals = [*(told.best() if told else ()), *(tie.config for tie in ties)]
        known = [config for config in dict.fromkeys(rivals) if config != decision.config and config in problem.space]
        configs = dict.fromkeys([decision.config, *known[: self.top], problem.default])
        return Track(kernel, cases, problem, list(configs))

    def kernel(self, name: str, told: Transcript | None) -> Tuned:
        """The kernel of that name: given, or where its transcript says."""
        if name in self.kernels:
            return self.kernels[name]
        target = told.target if told else ""
        place = target.rpartition(":")[0]
        # A file that happens to lie here would be run in place of a module of its name.
        if not target or not (self.trusted or (is_module(place) and not Path(place).exists())):
            raise CannotRace("where its kernel is found is not known here; give it as FILE.py:NAME")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what a program prints is not our answer
                found = find(target)
        except Exception as error:
            raise CannotRace(f"its kernel is not found: {type(error).__name__}: {error}") from error
        if not isinstance(found, Tuned):
            raise CannotRace(f"{target} is a {type(found).__name__}, not a kernel")
        found.using(self.session)
        return found

    def rerace(self, decision: Decision) -> Rerace:
        """Race a decision again, and confirm what looks bad."""
        try:
            return self._judged(decision, self.track(decision))
        except TunewrightError as error:
            return Rerace(decision, Fate.UNRACED, str(error))

    def _judged(self, decision: Decision, track: Track) -> Rerace:
        attempt: Any = track.kernel.attempt(track.cases)
        trials = self._trials(attempt, track.configs)
        chosen = trials[decision.config]
        if not chosen.works:  # once more: it may have met what was not its fault
            chosen = trials[decision.config] = attempt(Entry(decision.config))
        counting = list(trials.values())
        if self.session.settings.deterministic:
            counting = alike(track.problem, counting, decision.config)
        working = [trial.config for trial in counting if trial.works]
        stands = Rerace(decision, Fate.STANDS, raced=len(track.configs))
        if decision.config not in working:
            said = chosen.outcome
            reason = f"{said.kind}: {said.reason}" if isinstance(said, Failure) else "its results vary from run to run"
            with contextlib.suppress(CannotRace):  # whatever becomes of the others, this one is bad
                stands = self._decided(stands, track, counting, self._raced(attempt, working, track.problem.default))
            return msgspec.structs.replace(stands, fate=Fate.BAD, reason=reason)
        raced = self._raced(attempt, working, track.problem.default)
        if raced is not None and not raced[1].standings[0].samples:
            raced = self._raced(attempt, working, track.problem.default)
        stands = self._decided(stands, track, counting, raced)
        return self._compared(stands, attempt, raced, track.problem) if raced else stands

    def _decided(self, result: Rerace, track: Track, trials: list[Trial], raced: Raced | None) -> Rerace:
        """The result with what is decided here, by the rules that end a search: what was shipped stays on a tie."""
        before = result.decision
        try:
            found = decide(track.problem, trials, before.config, raced)
        except NothingWorked:
            return result
        note = f"{len(trials)} configs raced again on arrival"
        if other := ", ".join(track.problem.key.differences(before.key)):
            note += f"; {before.config} came with another {other}"
        seed = self.session.settings.seed
        found = noted(found, note, strategy="re-race", seed=seed, versions={"tunewright": __version__})
        attempt = track.kernel.attempt(track.cases)
        told = transcripts.of(track.problem, found, raced, before.config, attempt) if raced else None
        return msgspec.structs.replace(result, found=found, transcript=told)

    def _compared(self, stands: Rerace, attempt: Any, raced: Raced, problem: Problem) -> Rerace:
        """What becomes of a config that works, by how much slower it is than whoever leads, and than the default."""
        configs, race = raced
        if not race.standings[0].samples:
            return msgspec.structs.replace(stands, fate=Fate.BAD, reason="it failed in two races")
        slower = Gain(*race.ratio(0, race.leader)) if race.leader else None
        if slower is None or slower.low <= 1 + WORSE:
            return stands
        whom = configs[race.leader]
        if not self._confirmed(attempt, [configs[0], whom]):
            return msgspec.structs.replace(stands, reason=f"{whom} seemed faster, which was not confirmed")
        default = configs.index(problem.default) if problem.default in configs else 0
        behind = bool(default and race.standings[default].samples) and race.ratio(0, default)[1] > 1 + WORSE
        said = f"it takes {slower.ratio:.2f} times as long as {whom}" + (", and longer than the default" * behind)
        return msgspec.structs.replace(stands, fate=Fate.BAD if behind else Fate.HEALED, reason=said, slower=slower)

    @cached_property
    def _pool(self) -> Pool:
        settings = self.session.settings
        pool: Pool = plugins.load("pools", settings.pool_name)(settings.width)
        return pool

    def _trials(self, attempt: Any, configs: Sequence[Config]) -> dict[Config, Trial]:
        """Each config built, verified and timed for itself."""
        try:
            done = {trial.config: trial for trial in self._pool.run(attempt, map(Entry, configs))}
        finally:
            self._pool.close()
        for trial in done.values():
            self.session.emit(Tried(trial))
        return {config: done[config] for config in configs}

    def _raced(self, attempt: Any, configs: list[Config], default: Config) -> Raced | None:
        """The configs raced; None if there is only one."""
        if len(configs) < 2:
            return None
        kept = [place for place, config in enumerate(configs) if place == 0 or config == default]
        terms = msgspec.structs.replace(self.terms, seed=self.session.settings.seed)
        race: Race | None = attempt.race(configs, terms, kept)
        if race is None or not race.tested:
            raise CannotRace("its race broke off" if race is None else "its race was too short to tell")
        return configs, race

    def _confirmed(self, attempt: Any, pair: Sequence[Config]) -> bool:
        """Whether the first is slower than the second by the sign test, at this arrival's level."""
        found = self.signs(attempt, pair)
        return found is not None and found[0] >= needed(found[1], self.level)

    def signs(self, attempt: Any, pair: Sequence[Config]) -> tuple[int, int] | None:
        """In how many rounds of new races the first took longer than may be, and how many rounds there were.

        Their number is fixed before, and nothing is assumed of how times are distributed. None if a race broke off.
        """
        slower = rounds = 0
        for number in range(1, AGAIN + 1):
            terms = Terms(rounds=RECEIPT, seconds=self.terms.seconds, seed=self.session.settings.seed + number)
            race: Race | None = attempt.race(pair, terms, (0, 1))
            if race is None or any(len(one.samples) < RECEIPT for one in race.standings):
                return None
            times = [one.samples[:RECEIPT] for one in race.standings]
            slower += sum(one > (1 + WORSE) * other for one, other in zip(*times, strict=True))
            rounds += RECEIPT
        return slower, rounds


def _cases(kernel: Tuned, told: Transcript | None, key: Key) -> tuple[Inputs, ...]:
    """Recipes for the arguments: as they were, else by the sizes in the key."""
    if told is not None and told.recipe:
        try:
            if cases := wire.decode(told.recipe, tuple[Inputs, ...]):
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
    """Arguments of the sizes and dtypes that a key names."""
    if kernel.declared.inputs is not None:
        return kernel.example(signature.dims)
    recipe = Inputs.of_dims(kernel.parameters, signature.dims, kernel.declared.dtype)
    args = tuple(
        msgspec.structs.replace(arg, dtype=text.partition("[")[0]) if isinstance(arg, Array) else arg
        for arg, text in zip(recipe.args, signature.args, strict=True)
    )
    return msgspec.structs.replace(recipe, args=args).make()


def _made(kernel: Tuned, recipe: Inputs) -> Sequence[Any]:
    try:
        return list(kernel.make(recipe))
    except Exception as error:
        raise CannotRace(f"making its arguments raised {type(error).__name__}: {error}") from error
