"""Attempt: build, load, verify, time; config in, trial out. A bad config is a result, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tunewright.cases.exam import VARIES, Exam
from tunewright.cases.inputs import Inputs
from tunewright.cases.judge import expected_from
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure import race
from tunewright.measure.clock import Regime, Visit, alike, together, visitor
from tunewright.measure.lease import lease
from tunewright.measure.quiet import Watch
from tunewright.model.trial import CLEARLY, Entry, Failure, Kind, Outcome, Rival, Stage, Timing, Trial
from tunewright.ports.backend import Backend, Kernel, Launch, Timer
from tunewright.remarks import Remarks
from tunewright.spaces.config import Config

log = Remarks(__name__)

Watcher = Callable[[Stage], None]

FEW, MORE = race.Terms(rounds=12, seconds=0.5), race.Terms(rounds=16, seconds=1.0, fixed=True)
"""What a trial may cost that is close to the best so far, others leave after two rounds; and one that seems faster."""

WALL_ROUNDS = 4
"""How often a candidate must be grossly slower by the wall clock, where it may have met a neighbour twice."""


class Limits(msgspec.Struct, frozen=True):
    """What one attempt may cost: seconds to build, seconds to run, bytes of memory."""

    build: float = 120.0
    run: float = 60.0
    memory: int = 4 << 30


class Check(msgspec.Struct, frozen=True):
    """How results are judged: against `reference`, or against what the default config computes."""

    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    precise: bool = True


class Manner(msgspec.Struct, frozen=True):
    """How a kernel is timed: on how many threads, in which regime, on which device that one at a time may use."""

    threads: int = 1
    regime: Regime = Regime.HOT
    device: Path | None = None


def _unwatched(stage: Stage) -> None: ...


class Bench(msgspec.Struct, dict=True):
    """Everything a process needs to try configs of one problem: kernel, backend, cases and a judge."""

    backend: Backend
    kernel: Kernel
    cases: tuple[Inputs, ...]
    default: Config
    check: Check = Check()
    manner: Manner = Manner()
    make: Callable[[Inputs], Sequence[Any]] = Inputs.make
    target: str | None = None

    @cached_property
    def exams(self) -> list[Exam]:
        """The cases made real: what every attempt is run on."""
        try:
            made = [(inputs, self.make(inputs)) for inputs in self.cases]
        except Exception as error:
            raise BackendError(f"making the arguments raised {type(error).__name__}: {error}") from error
        return [Exam(self.kernel.parameters, args, self.check.tolerance, inputs.weight) for inputs, args in made]

    @cached_property
    def pacers(self) -> dict[Config, Pacer]:
        """The best so far, made ready in this process, by its config."""
        return {}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(exam.arguments.nbytes for exam in self.exams)

    def prepare(self) -> None:
        """Find the right results. A reference that fails is a broken program, and raises."""
        for exam in self.exams:
            if not exam.expected:
                exam.expected = self._by_reference(exam) if self.check.reference else self._by_default(exam)

    def _by_reference(self, exam: Exam) -> list[Any]:
        assert self.check.reference is not None
        precise, pristine = self.check.precise, exam.arguments.pristine
        try:
            with lease(self.manner.device):  # a reference may use every core there is
                return expected_from(self.check.reference, self.kernel.parameters, pristine, precise=precise)
        except Exception as error:
            hint = '; if it takes the kernel\'s own dtypes only, declare precision="same"' if precise else ""
            raise BackendError(f"the reference raised {type(error).__name__}: {error}{hint}") from error

    def _by_default(self, exam: Exam) -> list[Any]:
        try:
            artifact = self.backend.build(self.kernel, self.default, exam.signature)
            with lease(self.manner.device):
                results = exam.run(self.backend.load(self.kernel, artifact))
            if said := exam.arguments.damage():
                raise BackendError(said)
        except Exception as error:
            raise BackendError(
                f"there is no reference, and the default config ({self.default}) fails: "
                f"{type(error).__name__}: {error}; give a `reference=` or another `default=`"
            ) from error
        return deepcopy(list(results.values()))

    def __call__(self, entry: Entry, watch: Watcher = _unwatched) -> Trial:
        """Try one config here and now; `watch` is told each stage as it begins."""
        self.prepare()
        stage, started, built, prints = Stage.BUILD, time.perf_counter(), None, ""
        outcome: Outcome
        try:
            watch(stage)
            artifacts, pacer = self.built(entry.config), self._pacer(entry.rival)
            built = time.perf_counter()
            watch(stage := Stage.WAIT)
            with lease(self.manner.device):
                watch(stage := Stage.LOAD)
                launches = [self.backend.load(self.kernel, artifact) for artifact in artifacts]
                watch(stage := Stage.VERIFY)
                said, prints = self._judge(launches)
                if said:
                    outcome = Failure(Stage.VERIFY, Kind.WRONG, said)
                else:
                    watch(stage := Stage.TIME)
                    outcome = self._time(launches, entry, pacer)
        except MemoryError as error:
            outcome = Failure(stage, Kind.MEMORY, f"MemoryError: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            kind = Kind.REFUSED if stage in (Stage.BUILD, Stage.LOAD) else Kind.RAISED
            said = str(error) if isinstance(error, TunewrightError) else f"{type(error).__name__}: {error}"
            outcome = Failure(stage, kind, said)
        ended = time.perf_counter()
        ran = ended - (built or ended)
        return Trial(entry.config, outcome, (built or ended) - started, ran, at=time.time(), fingerprint=prints)

    def built(self, config: Config) -> list[Any]:
        """The artefact for each case; cases of one signature share it."""
        known = {str(exam.signature): exam.signature for exam in self.exams}
        made = {text: self.backend.build(self.kernel, config, signature) for text, signature in known.items()}
        return [made[str(exam.signature)] for exam in self.exams]

    def _judge(self, launches: Sequence[Launch]) -> tuple[str | None, str]:
        """What is wrong in any case, and the fingerprints of all."""
        alone, prints = self.check.reference is None, []
        for exam, launch in zip(self.exams, launches, strict=True):
            said, one = exam.judge(launch, same_dtype=alone)
            if said:
                return said, ""
            prints.append(one)
        return None, VARIES if VARIES in prints else "-".join(prints)

    def _visit(self, launches: Sequence[Launch]) -> tuple[Visit, list[Timer]]:
        """Visits to a config that works, over all cases, and their timers."""
        visits, timers = [], []
        for exam, launch in zip(self.exams, launches, strict=True):
            exam.run(launch)
            timers.append(self.backend.timer(launch, exam.arguments.values, self.manner.threads))
            visits.append(visitor(timers[-1], exam.arguments.restorer(), self.manner.regime))
        return together(visits, [exam.weight for exam in self.exams]), timers

    def _time(self, launches: Sequence[Launch], entry: Entry, pacer: Pacer | None) -> Timing:
        """Few samples for a slow candidate, more for one that is close to its rival; alone, as many as for a tie."""
        visit, timers = self._visit(launches)
        rival, pace = entry.rival, self._pace(pacer) if pacer else None
        if rival is None or pace is None or rival.config == entry.config:
            began, samples = time.perf_counter(), [visit()]
            while len(samples) < 3 or (len(samples) < FEW.rounds and time.perf_counter() - began < FEW.seconds):
                samples.append(visit())
            return Timing(tuple(samples), alike(timers))
        usual = [timer.clock for timer in pace[1]]
        clock = alike([*timers, *pace[1]])
        run = race.run([pace[0], visit], _fair(FEW, clock))
        ratio = run.ratio(1, 0)[0]
        if ratio < CLEARLY:
            # Of many that are raced some seem faster by luck. Were that handed on, those that follow would be measured
            # by it: times would sink from rival to rival. A longer race, which knows nothing of the first one, tells.
            first, run = run, race.run([pace[0], visit], _fair(MORE, clock))
            ratio, _, high = run.ratio(1, 0)
            # A slow pair has time for too few rounds to say how sure it is: then all rounds of both races must agree.
            if min(high, max(first.most(1, 0), run.most(1, 0))) >= CLEARLY:
                ratio = max(ratio, CLEARLY)
        if usual != [timer.clock for timer in pace[1]]:
            self.pacers.clear()  # it took this candidate's clock; the next may not need that
        return Timing(run.standings[1].samples, clock, ratio, rival.seconds)

    def _pacer(self, rival: Rival | None) -> Pacer | None:
        """The rival, built; what was made ready for it before is kept while it stays the rival."""
        if rival is None:
            return None
        if rival.config not in self.pacers:
            self.pacers.clear()
            self.pacers[rival.config] = Pacer(rival.config, self.built(rival.config))
        return self.pacers[rival.config]

    def _pace(self, pacer: Pacer) -> tuple[Visit, list[Timer]] | None:
        """Visits to the rival and their timers; None if it fails here, which is not the candidate's fault."""
        if pacer.ready is None:
            try:
                pacer.ready = self._visit([self.backend.load(self.kernel, one) for one in pacer.artifacts])
            except Exception as error:  # noqa: BLE001 - the rival's, not the candidate's
                log.info("%s: the best so far, %s, fails in another worker: %s", self.kernel.name, pacer.config, error)
        return pacer.ready

    def race(self, configs: Sequence[Config], terms: race.Terms, kept: Sequence[int] = ()) -> race.Race | None:
        """Configs that work, raced here against each other on the same arguments; one that fails after all is out."""
        artifacts = [self.built(config) for config in configs]
        with lease(self.manner.device):
            loaded = [[self.backend.load(self.kernel, one) for one in each] for each in artifacts]
            ready = {i: visit for i, launches in enumerate(loaded) if (visit := self._readied(configs[i], launches))}
            if not ready:
                return None
            clock = alike([timer for _, timers in ready.values() for timer in timers])
            terms = _fair(terms, clock)
            watch, fit = Watch(), list(ready)
            while fit:
                runners = [_blamed(ready[i][0], i) for i in fit]
                try:
                    run = race.run(runners, terms, kept=[fit.index(i) for i in kept if i in fit])
                except _Failed as failed:
                    log.warning("%s: %s failed in the race: %s", self.kernel.name, configs[failed.number], failed)
                    fit.remove(failed.number)
                    continue
                conditions = watch.stop(run.standings[run.leader].samples)
                run = race.among(run, fit, len(configs))
                return msgspec.structs.replace(run, conditions=conditions, clock=clock)
        return None

    def _readied(self, config: Config, launches: Sequence[Launch]) -> tuple[Visit, list[Timer]] | None:
        """A visit to one that is to be raced; None if it fails before the start."""
        try:
            return self._visit(launches)
        except Exception as error:  # noqa: BLE001 - it worked when it was tried; the others are still to be raced
            said = f"{type(error).__name__}: {error}"
            log.warning("%s: %s failed in the race: %s", self.kernel.name, config, said)
            return None


class Pacer:
    """The best so far in this process: its artefacts, and visits to it once they are loaded."""

    def __init__(self, config: Config, artifacts: list[Any]) -> None:
        self.config, self.artifacts = config, artifacts
        self.ready: tuple[Visit, list[Timer]] | None = None


def _fair(terms: race.Terms, clock: str) -> race.Terms:
    """The terms; by the wall clock gross losers get more rounds."""
    return msgspec.structs.replace(terms, gross=WALL_ROUNDS) if clock == "wall" else terms


class _Failed(TunewrightError):
    """A candidate that worked in its trial, and not in a race."""

    def __init__(self, number: int, said: str) -> None:
        super().__init__(said)
        self.number = number


def _blamed(visit: Visit, number: int) -> Visit:
    """The visit; if it fails, one knows whose it was."""

    def blamed() -> float:
        try:
            return visit()
        except Exception as error:
            raise _Failed(number, f"{type(error).__name__}: {error}") from error

    return blamed
