"""A candidate of a kernel with a backend: launched, sampled and checked on rotating sets of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from random import Random
from typing import Protocol

from tunewright.cases.arguments import Arguments, Outputs
from tunewright.cases.validation import VARIES
from tunewright.measure.case_check import CaseCheck, CaseSets
from tunewright.measure.clock import (
    MIN_SAMPLE_SECONDS,
    Calibration,
    Regime,
    Restore,
    calibrate,
    sample_burst,
    sample_separately,
    use_clock,
    weighted_mean,
)  # fmt: skip
from tunewright.measure.judge import Judge
from tunewright.model.trial import median
from tunewright.ports.backend import Backend, Launch, Timer
from tunewright.ports.candidate import WrongResult

REMEMBERED_RATIO, REMEMBERED_SECONDS = 2.0, 1e-5
"""A launch on new contents that always takes this many times as long as the next ones, and so much longer, computes
what the next ones remember. Cold caches make less of a difference."""

COMPARED_LAUNCHES = 5
"""Launches on new contents that are compared with the next ones."""

CLOCK_CHECKS = 3
"""How often a clock must deviate to be wrong."""

CONTROL_SECONDS = 4e-3
"""How long the launches take by which the clock of this process is checked."""


class HasTiming(Protocol):
    """What a candidate needs of the options of a workload."""

    @property
    def threads(self) -> int: ...
    @property
    def regime(self) -> Regime: ...


class KernelCandidate:
    """A loaded config: one launch and its sets of arguments for each case."""

    def __init__(
        self,
        backend: Backend,
        launches: Sequence[Sequence[Launch]],
        sets: Sequence[CaseSets],
        judge: Judge,
        timing: HasTiming,
    ) -> None:
        self._runs = [
            _CaseRun(number, backend, own_launches, own, judge, timing)
            for number, (own_launches, own) in enumerate(zip(launches, sets, strict=True))
        ]
        self._weights = [next(iter(own.values())).weight for own in sets]
        self._is_calibrated = False

    @property
    def launches(self) -> int:
        """Launches so far."""
        return sum(run.launches for run in self._runs)

    @property
    def timers(self) -> list[Timer]:
        """The timers of all cases and sets."""
        self._calibrate()
        return [timer for run in self._runs for timer in run.timers]

    @property
    def was_launched_once(self) -> bool:
        """Whether there was no second launch in some case."""
        return any(run.launches < 2 for run in self._runs)

    @property
    def launch_seconds(self) -> float:
        """Seconds of a launch of all cases."""
        return sum(run.launch_seconds for run in self._runs)

    @property
    def first_sample(self) -> tuple[float, str]:
        """The weighted mean of a launch in each case, by the wall clock: of the first, or of the shorter of two."""
        return weighted_mean([run.launch_seconds for run in self._runs], self._weights), "wall"

    def hurry(self) -> None:
        """Uses one set of arguments from now on, and calibrates nothing."""
        for run in self._runs:
            run.hurried = True

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns the first mismatch in any case, and the fingerprints of all."""
        fingerprints = []
        for run in self._runs:
            mismatch, own = run.verify(seconds / len(self._runs))
            if mismatch:
                return mismatch, ""
            fingerprints.append(own)
        return None, VARIES if VARIES in fingerprints else "-".join(fingerprints)

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns the weighted mean of the times in all cases."""
        self._calibrate()
        return weighted_mean([run.sample(draw, audited=audited) for run in self._runs], self._weights)

    def check(self, draw: int, *, launches: int) -> str | None:
        """Returns the first mismatch in any case on the contents of a draw, or how the clock deviates."""
        problem = next((problem for run in self._runs if (problem := run.check(draw, launches))), None)
        return problem or next((problem for run in self._runs if (problem := run.clock_problem())), None)

    def _calibrate(self) -> None:
        if self._is_calibrated:
            return
        for run in self._runs:
            run.calibrate()
        self._is_calibrated = True


class _CaseRun(CaseCheck):
    """One case of a candidate: a timer for each set of arguments, and how it is sampled."""

    calibration: Calibration

    def __init__(
        self, number: int, backend: Backend, launches: Sequence[Launch], sets: CaseSets, judge: Judge, timing: HasTiming
    ) -> None:
        super().__init__(number, launches, sets, judge)
        self._backend, self._timing = backend, timing
        self._restores: list[Restore | None] = []
        self._remembers = self.hurried = False
        self._random = Random()
        self.timers: list[Timer] = []

    def arguments(self, place: int) -> Arguments:
        """Returns the arguments of a placement."""
        return self.placements[place].case.arguments

    def check(self, draw: int, launches: int) -> str | None:
        """Returns what is wrong with results, or that the kernel began to remember them."""
        if problem := self.examine(draw, launches):
            return problem
        if self.timers and not self._remembers and self._is_faster_again(2 * REMEMBERED_RATIO, 4 * REMEMBERED_SECONDS):
            return (
                "launches on contents that it has just seen are now much faster than others, and were not at first: "
                "it began to remember results; if it keeps what it computes from weights, declare them constant, as in "
                'In("K", "N", constant=True)'
            )
        return None

    def calibrate(self) -> None:
        """Binds timers to all sets, and finds out how long a sample is and whether the kernel remembers results."""
        if self.hurried:  # its first launch has left the first set as it leaves it
            del self.placements[1:]
            launch, _, case = self.placements[0]
            self.timers = [self._backend.timer(launch, case.arguments.values, self._timing.threads)]
            use_clock(self.timers, self.clock if self._timing.threads == 1 else "wall")  # it is not probed any more
            self._restores = [case.arguments.restorer()]
            self.calibration = Calibration(1, 0, self.launch_seconds)
            return
        for place, (launch, _, case) in enumerate(self.placements):
            self.run(place, 0)
            self.timers.append(self._backend.timer(launch, case.arguments.values, self._timing.threads))
            self._restores.append(case.arguments.restorer())
        self.calibration = calibrate(self.timers[0], self._restores[0], self._timing.regime)
        self._remembers = self._is_faster_again(REMEMBERED_RATIO, REMEMBERED_SECONDS)
        if self._remembers:  # how many launches make a sample depends on how long those take that compute
            each = min(self._launch_on_new_contents() for _ in range(COMPARED_LAUNCHES))
            self.calibration = Calibration(ceil(MIN_SAMPLE_SECONDS / each), 0, each)

    def _launch_on_new_contents(self) -> float:
        self.arguments(0).refresh(self._random.getrandbits(30))
        self.launches += 1
        return sample_burst(self.timers[0], self._restores[0], 1)

    def _is_faster_again(self, ratio: float, seconds: float) -> bool:
        """Whether launches on the same contents are faster than launches on new contents, each time."""
        if not self._is_burst or not self.arguments(0).has_arrays:
            return False
        timer, restore, again = self.timers[0], self._restores[0], 1 + self.calibration.burst // 8
        firsts, nexts = [], []
        for _ in range(COMPARED_LAUNCHES):
            firsts.append(self._launch_on_new_contents())
            nexts.append(sample_burst(timer, restore, again))
            self.launches += again
        return remembers(firsts, nexts, ratio, seconds)

    def clock_problem(self) -> str | None:
        """Returns how the clock deviates in a placement, if it does so again and again: CPU time has other users."""
        return next((problem for place in range(len(self.timers)) if (problem := self._clock_problem(place))), None)

    def _clock_problem(self, place: int) -> str | None:
        restore, problem = self._restores[place], None
        for _ in range(CLOCK_CHECKS):
            if restore:
                restore()
            if not (problem := self._judge.check_clock(lambda: self._control(place))):
                break
        return problem

    def _control(self, place: int) -> tuple[float, str]:
        """Launches for some milliseconds, or once if arguments must be restored; returns the seconds by its clock."""
        timer, each, total = self.timers[place], self.calibration.each, 0.0
        if self._restores[place]:
            self.launches += 1
            return timer(1), timer.clock
        for _ in range(3):  # the first estimate may be too long
            count = ceil((CONTROL_SECONDS - total) / max(each, 1e-8))
            self.launches += count
            seconds = sample_burst(timer, None, count)
            total, each = total + count * seconds, min(each, seconds)
            if total >= CONTROL_SECONDS / 2:
                break
        return total, timer.clock

    @property
    def _is_burst(self) -> bool:
        """Whether samples are bursts of launches on the same contents."""
        return self._timing.regime is Regime.HOT and self.calibration.warm_up > 0

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns seconds per launch on the contents of a draw.

        In a burst, the first launch on new contents is not counted, unless the others remember what it computed. A slow
        kernel stays on one set, since another would have to be brought into the caches first.
        """
        if not self._is_burst or self._remembers:
            return self._sample_separately(draw, audited=audited)
        place = self.place(draw)
        if not self.arguments(place).has_arrays:
            self._warm_up(place, self.calibration.warm_up)
            return self._burst(place)
        self.arguments(place).refresh(draw, outputs=_outputs(draw))
        self._warm_up(place, 1)
        early = audited and self._random.random() < 0.5  # at once: a thread may write the results too late
        if early:
            self._audit(place, draw)
        self._warm_up(place, self.calibration.warm_up - 1)
        seconds = self._burst(place)
        if audited and not early:
            self._audit(place, draw)
        return seconds

    def _warm_up(self, place: int, count: int) -> None:
        """Launches without counting: another candidate ran before."""
        if count > 0:
            self.launches += count
            sample_burst(self.timers[place], self._restores[place], count)

    def _burst(self, place: int) -> float:
        self.launches += self.calibration.burst
        return sample_burst(self.timers[place], self._restores[place], self.calibration.burst)

    def _sample_separately(self, draw: int, *, audited: bool) -> float:
        """Returns seconds per launch, each on contents of its own; the last has those of the draw."""
        regime, count = self._timing.regime, self.calibration.burst
        place = 0 if regime is Regime.HOT and not self._remembers else self.place(draw)
        arguments, restore, timer = self.arguments(place), self._restores[place], self.timers[place]
        draws = [self._random.getrandbits(30) for _ in range(count - 1)] + [draw]
        self.launches += count

        def before() -> None:
            arguments.refresh(draws[0], outputs=_outputs(draws[0]))
            draws.append(draws.pop(0))
            if restore:
                restore()
            if regime is not Regime.HOT:
                timer.flush(whole=regime is Regime.COLD)

        seconds = sample_separately(timer, before, count)
        if audited:
            self._audit(place, draws[-1])
        return seconds

    def _audit(self, place: int, draw: int) -> None:
        """Raises WrongResult if the results of the latest launch are wrong."""
        returned = getattr(self.timers[place], "returned", None)
        if self.arguments(place).has_outputs or returned is not None:
            problem = self.problem(place, draw, self.arguments(place).results(returned))
        else:  # what a timed launch returned is gone
            problem = self.problem(place, draw, self.run(place, draw))
        if problem:
            raise WrongResult(problem)


def remembers(firsts: Sequence[float], nexts: Sequence[float], ratio: float, seconds: float) -> bool:
    """Whether all launches on new contents took much longer than most of the next ones: a clock may err at times."""
    return min(firsts) > ratio * median(nexts) + seconds


def _outputs(draw: int) -> Outputs:
    """Returns what launches on a draw find in their outputs: each in turn, so that none can be relied on."""
    return (Outputs.POISONED, Outputs.NUMBERS, Outputs.KEPT, Outputs.POISONED)[draw // 16 % 4]
