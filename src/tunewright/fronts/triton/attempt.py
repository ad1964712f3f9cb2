"""Attempt: configs of a Triton kernel tried in this process, since what a GPU knows of a process cannot be forked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from tunewright.fronts.triton.bursts import Burst
from tunewright.fronts.triton.configs import Back
from tunewright.fronts.triton.snapshot import Snapshot
from tunewright.measure import race
from tunewright.measure.clock import Visit
from tunewright.measure.lease import lease
from tunewright.measure.quiet import Watch
from tunewright.model.trial import Entry, Failure, Kind, Outcome, Rival, Stage, Timing, Trial
from tunewright.remarks import Remarks
from tunewright.spaces.config import Config

log = Remarks(__name__)

FEW = race.Terms(rounds=12, seconds=0.5)
"""What a trial may cost that is close to the best so far; others leave after two rounds."""

QUANTILES = (0.5, 0.2, 0.8)
"""What Triton asks benchmarks for, and shows in `configs_timings`."""

NEVER = [float("inf")] * 3


class Hooked(Protocol):
    """An autotuner, as far as a launch needs it."""

    fn: Any
    base_fn: Any
    pre_hook: Callable[..., Any]
    post_hook: Callable[..., Any]


class Call(NamedTuple):
    """A call to tune for: arguments in order, those by name with the grid, and all by their names."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]


class Candidate:
    """A config bound to a call, with the hooks that go with a launch: calling it does what Triton would benchmark."""

    def __init__(self, tuner: Hooked, call: Call, config: Any) -> None:
        self._tuner, self._args, self.config = tuner, call.args, config
        self._current = {**call.kwargs, **config.all_kwargs()}
        self._full = {**call.named, **self._current}

    def before(self) -> None:
        """Hooks that go before a launch."""
        if self.config.pre_hook:
            self.config.pre_hook(self._full)
        self._tuner.pre_hook(self._full)

    def run(self) -> None:
        """The launch itself."""
        try:
            self._tuner.fn.run(*self._args, **self._current)
        except Exception as error:
            self._tuner.post_hook(self._full, exception=error)
            raise

    def after(self) -> None:
        """Hooks that go after a launch."""
        self._tuner.post_hook(self._full, exception=None)

    def __call__(self) -> None:
        self.before()
        self.run()
        self.after()


class Surroundings(msgspec.Struct, frozen=True):
    """What a trial needs beside its config: what to put back, a benchmark if there is to be one, how to judge, whose
    turn it is, and whether to speak.
    """

    snapshot: Snapshot
    bench: Callable[..., Any] | None = None
    judge: Callable[[], str | None] | None = None
    device: Path | None = None
    verbose: bool = False


class Benched:
    """Configs tried on a call, each timed once, by a benchmark that the user or the driver brings."""

    clock = "do_bench"

    def __init__(self, tuner: Hooked, call: Call, back: Back, around: Surroundings) -> None:
        self._tuner, self._call, self._back, self._around = tuner, call, back, around
        self._stage, self._built = Stage.BUILD, 0.0
        self.timings: dict[Any, Any] = {}
        self.broken: Exception | None = None

    def __call__(self, entry: Entry) -> Trial:
        """Try one config here and now."""
        config = self._back(entry.config)
        self._say(f"Autotuning kernel {self._tuner.base_fn.__name__} with config {config}")
        self._stage, started = Stage.BUILD, time.perf_counter()
        self._built = started
        outcome: Outcome
        candidate = Candidate(self._tuner, self._call, config)
        try:
            with lease(self._around.device):
                outcome = self._tried(candidate, entry)
        except Exception as error:  # noqa: BLE001 - whatever a config breaks is data about the config
            self._say(f"Autotuning failed with {error}")
            self.broken = self.broken or error
            kind = Kind.REFUSED if self._stage is Stage.BUILD else Kind.RAISED
            outcome = Failure(self._stage, kind, f"{type(error).__name__}: {error}".strip())
        finally:
            self._around.snapshot.restore()
        if isinstance(outcome, Failure):
            self.timings[config] = list(NEVER)
        ended = time.perf_counter()
        return Trial(entry.config, outcome, self._built - started, ended - self._built, at=time.time())

    def _tried(self, candidate: Candidate, entry: Entry) -> Outcome:
        assert self._around.bench is not None
        told = self._around.bench(candidate, quantiles=QUANTILES)
        self.timings[candidate.config] = told
        centre = float(told[0] if isinstance(told, Sequence | np.ndarray) else told)
        if not isfinite(centre):
            return Failure(Stage.TIME, Kind.RAISED, f"the benchmark says {centre} ms, which is no time")
        return Timing((max(1e-3 * centre, 1e-12),), self.clock)

    def _say(self, text: str) -> None:
        """As Triton does where TRITON_PRINT_AUTOTUNING asks for it."""
        if self._around.verbose:
            sys.stdout.write(f"{text}\n")


class Raced(Benched):
    """Configs tried on a call in bursts that are interleaved with those of the best so far, and raced at the end."""

    def __init__(self, tuner: Hooked, call: Call, back: Back, around: Surroundings) -> None:
        super().__init__(tuner, call, back, around)
        self._pacer: tuple[Config, Visit] | None = None

    def _tried(self, candidate: Candidate, entry: Entry) -> Outcome:
        snapshot, judge = self._around.snapshot, self._around.judge
        candidate()
        self._built = time.perf_counter()
        if judge is not None:
            self._stage = Stage.VERIFY
            if said := judge():
                return Failure(Stage.VERIFY, Kind.WRONG, said)
        snapshot.restore()
        self._stage = Stage.TIME
        visit = self._visit(candidate)
        pace = self._pace(entry.rival) if entry.rival and entry.rival.config != entry.config else None
        if pace is None or entry.rival is None:
            timing = Timing(tuple(_alone(visit)), Burst.clock)
        else:
            run = race.run([pace, visit], FEW)
            timing = Timing(run.standings[1].samples, Burst.clock, run.ratio(1, 0)[0], entry.rival.seconds)
        self.timings[candidate.config] = quantiles(timing.samples)
        return timing

    def _visit(self, candidate: Candidate) -> Visit:
        burst, restore = Burst(candidate), self._around.snapshot.restore

        def visit() -> float:
            seconds = burst()
            restore()
            return seconds

        return visit

    def _pace(self, rival: Rival) -> Visit | None:
        """Visits to the best so far; None if it fails now, which is not the candidate's fault."""
        if self._pacer is None or self._pacer[0] != rival.config:
            try:
                candidate = Candidate(self._tuner, self._call, self._back(rival.config))
                self._pacer = rival.config, self._visit(candidate)
            except Exception as error:  # noqa: BLE001 - the rival's, not the candidate's
                log.info("the best so far, %s, fails when it is run again: %s", rival.config, error)
                return None
        return self._pacer[1]

    def race(self, configs: Sequence[Config], terms: race.Terms, kept: Sequence[int] = ()) -> race.Race | None:
        """Configs that work, raced against each other on this call."""
        watch = Watch()
        try:
            with lease(self._around.device):
                visits = [self._visit(Candidate(self._tuner, self._call, self._back(one))) for one in configs]
                run = race.run(visits, terms, kept=kept)
        except Exception as error:  # noqa: BLE001 - they worked when they were tried
            log.warning("the race of the finalists broke off: %s: %s", type(error).__name__, error)
            return None
        finally:
            self._around.snapshot.restore()
        for config, standing in zip(configs, run.standings, strict=True):
            self.timings[self._back(config)] = quantiles(standing.samples)
        conditions = watch.stop(run.standings[run.leader].samples)
        return msgspec.structs.replace(run, conditions=conditions, clock=Burst.clock)


def _alone(visit: Visit) -> Iterator[float]:
    """Samples of one that nobody is there to be raced against: three, and more while there is time."""
    began = time.perf_counter()
    for number in range(FEW.rounds):
        if number >= 3 and time.perf_counter() - began > FEW.seconds:
            return
        yield visit()


def quantiles(samples: Sequence[float]) -> list[float]:
    """Samples in seconds as Triton shows them: median, fast and slow, in milliseconds."""
    return [float(1e3 * value) for value in np.quantile(samples, QUANTILES)]


def refuse_conflicts(configs: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Refuse a call that sets what the configs set, as Triton does."""
    if conflicts := sorted({name for config in configs for name in config.kwargs} & given.keys()):
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}."
            " Make sure that you don't re-define auto-tuned symbols."
        )
