"""Attempt: configs tried in this process, since a graph under compilation cannot be handed to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tunewright.measure import race
from tunewright.measure.attempt import FEW, MORE, WALL_ROUNDS
from tunewright.measure.clock import HostTimer, Restore, Visit, alike, visitor
from tunewright.measure.lease import lease
from tunewright.measure.quiet import Watch
from tunewright.model.trial import CLEARLY, Entry, Failure, Kind, Outcome, Rival, Stage, Timing, Trial, median
from tunewright.remarks import Remarks
from tunewright.spaces.config import Config

log = Remarks(__name__)

Launch = Callable[[], Any]
"""A candidate bound to its arguments; returns its result."""


class Surroundings(msgspec.Struct, frozen=True):
    """What a trial needs beside its config: threads to time by, what to put back, whose turn it is; how many seconds a
    visit lasts at least, and how many times as long as usual a race may."""

    threads: int = 1
    restore: Restore | None = None
    device: Path | None = None
    burst: float = 0.0
    patience: float = 1.0


def lasting(visit: Visit, seconds: float) -> Visit:
    """Visits that last so long, of which the first half does not count: weights are then in the caches, as they are for
    a model that runs alone, and not as others have left them; candidates that share weights would help each other."""

    def burst() -> float:
        until, samples = time.perf_counter() + seconds, [visit()]
        while time.perf_counter() < until:
            samples.append(visit())
        return median(samples[len(samples) // 2 :])

    return burst


class Contender:
    """A config made ready: its launch, and visits to it."""

    def __init__(self, launch: Launch, around: Surroundings) -> None:
        self.launch = launch
        self.timer = HostTimer(launch, around.threads)
        self._around, self._visit = around, None  # type: tuple[Surroundings, Visit | None]

    @property
    def visit(self) -> Visit:
        """Runs it for a moment."""
        if self._visit is None:
            self._visit = lasting(visitor(self.timer, self._around.restore), self._around.burst)
        return self._visit


class Attempt:
    """Tries configs that `build` makes callable and whose results `judge` objects to or not; `made` keeps them."""

    def __init__(
        self, build: Callable[[Config], Launch], judge: Callable[[Any], str | None], around: Surroundings
    ) -> None:
        self._build, self._judge, self._around = build, judge, around
        self.made: dict[Config, Contender] = {}

    def __call__(self, entry: Entry) -> Trial:
        """Try one config here and now."""
        stage, started, built = Stage.BUILD, time.perf_counter(), None
        outcome: Outcome
        try:
            one = self._contender(entry.config)
            built = time.perf_counter()
            with lease(self._around.device):
                stage = Stage.VERIFY
                if said := self._judge(self._fresh(one)):
                    outcome = Failure(stage, Kind.WRONG, said)
                else:
                    stage = Stage.TIME
                    outcome = self._timed(one, entry)
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            kind = Kind.REFUSED if stage is Stage.BUILD else Kind.RAISED
            outcome = Failure(stage, kind, f"{type(error).__name__}: {error}".strip().partition("\n")[0])
        if isinstance(outcome, Failure):
            self.made.pop(entry.config, None)
        ended = time.perf_counter()
        return Trial(entry.config, outcome, (built or ended) - started, ended - (built or ended), at=time.time())

    def _contender(self, config: Config) -> Contender:
        if config not in self.made:
            self.made[config] = Contender(self._build(config), self._around)
        return self.made[config]

    def _fresh(self, one: Contender) -> Any:
        """A result from arguments as they were."""
        if self._around.restore:
            self._around.restore()
        return one.launch()

    def _timed(self, one: Contender, entry: Entry) -> Timing:
        pacer = self._pacer(entry.rival) if entry.rival and entry.rival.config != entry.config else None
        if pacer is None or entry.rival is None:
            samples = [one.visit() for _ in range(3)]
            return Timing(tuple(samples), one.timer.clock)
        visits = [pacer.visit, one.visit]
        clock = alike([pacer.timer, one.timer])
        run = race.run(visits, _fair(FEW, clock, self._around.patience))
        ratio = run.ratio(1, 0)[0]
        if ratio < CLEARLY:  # luck is not handed on: a longer race, which knows nothing of the first one, tells
            run = race.run(visits, _fair(MORE, clock, self._around.patience))
            ratio, _, high = run.ratio(1, 0)
            ratio = ratio if high < CLEARLY else max(ratio, CLEARLY)
        return Timing(run.standings[1].samples, clock, ratio, entry.rival.seconds)

    def _pacer(self, rival: Rival) -> Contender | None:
        """The best so far; None if it cannot be made now, which is not the candidate's fault."""
        try:
            return self._contender(rival.config)
        except Exception as error:  # noqa: BLE001 - the rival's, not the candidate's
            log.info("the best so far, %s, cannot be made again: %s", rival.config, error)
            return None

    def race(self, configs: Sequence[Config], terms: race.Terms, kept: Sequence[int] = ()) -> race.Race | None:
        """Configs that work, raced against each other."""
        watch = Watch()
        try:
            ready = [self._contender(config) for config in configs]
            with lease(self._around.device):
                visits = [one.visit for one in ready]
                clock = alike([one.timer for one in ready])
                run = race.run(visits, _fair(terms, clock, self._around.patience), kept=kept)
        except Exception as error:  # noqa: BLE001 - they worked when they were tried
            log.warning("the race of the finalists broke off: %s: %s", type(error).__name__, error)
            return None
        conditions = watch.stop(run.standings[run.leader].samples)
        return msgspec.structs.replace(run, conditions=conditions, clock=clock)


def _fair(usual: race.Terms, clock: str, patience: float) -> race.Terms:
    """The terms for those who take patience; by the wall clock gross losers get more rounds."""
    gross = WALL_ROUNDS if clock == "wall" else usual.gross
    return msgspec.structs.replace(usual, seconds=patience * usual.seconds, span=patience * usual.span, gross=gross)
