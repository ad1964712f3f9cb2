"""A candidate on tensors: launched, sampled and checked on rotating sets of arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tunewright.cases.arguments import Outputs
from tunewright.cases.validation import VARIES, fingerprint
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure.case_check import REPEAT_SECONDS
from tunewright.measure.clock import (
    MIN_SAMPLE_SECONDS,
    Calibration,
    HostTimer,
    Sampler,
    calibrate,
    sample_burst,
    sample_separately,
)  # fmt: skip
from tunewright.measure.kernel_candidate import COMPARED_LAUNCHES, REMEMBERED_RATIO, REMEMBERED_SECONDS, remembers
from tunewright.model.trial import median
from tunewright.ports.candidate import WrongResult
from tunewright.torch.diagnostics.numerics import tensors_in
from tunewright.torch.oracle import Oracle
from tunewright.torch.tensor_sets import TensorSet, bits_of, same_bits

NO_MEMORY = "can't allocate memory"
"""What PyTorch says if there is not enough memory."""

LATER_CALLS = 4
"""Launches after which results must be as they were; two if launches take long."""

Launch = Callable[[], Any]
"""A candidate bound to a set of arguments; returns its results."""


class TorchTimingOptions(msgspec.Struct, frozen=True):
    """How candidates are timed: number of threads, and minimum seconds of a sample.

    `lock` is the file that one process at a time holds while it measures.
    """

    threads: int = 1
    sample_seconds: float = 0.0
    lock: Path | None = None


def sustained_sampler(sample: Sampler, seconds: float) -> Sampler:
    """Returns a sampler that runs for `seconds` and discards the first half.

    By then weights are in the caches as they are for a model that runs alone; candidates that share weights would
    otherwise warm the caches for each other.
    """

    def sustained() -> float:
        end, samples = time.perf_counter() + seconds, [sample()]
        while time.perf_counter() < end:
            samples.append(sample())
        return median(samples[len(samples) // 2 :])

    return sustained


@contextmanager
def reported_failure(forget: Callable[[], object]) -> Iterator[None]:
    """Calls `forget` if a config fails, and keeps the first line of what PyTorch says about it, which may be pages."""
    try:
        yield
    except Exception as error:
        forget()
        if isinstance(error, TunewrightError | MemoryError):
            raise
        line = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        raise (MemoryError if NO_MEMORY in line else BackendError)(line) from error


class BoundLaunch:
    """A launch on one set of arguments, with its timer and what it returned last."""

    def __init__(self, launch: Launch, arguments: TensorSet, threads: int) -> None:
        self.arguments, self.count = arguments, 0
        self._launch, self._returned = launch, None
        self.timer = HostTimer(self._call, threads)
        self._restore = arguments.restore

    def _call(self) -> None:
        self._returned = None  # before the launch, so that its memory can be used again
        self._returned = self._launch()

    @property
    def results(self) -> list[Any]:
        """What the latest launch returned, and what it changed."""
        return [*tensors_in(self._returned), *self.arguments.written]

    def run(self, draw: int, found: Outputs | None = None) -> list[Any]:
        """Launches on the contents of a draw; `found` is what is in its outputs before."""
        self.arguments.refresh(draw, found)
        self.count += 1
        self._call()
        return self.results

    def calibrate(self) -> Calibration:
        """Finds out how many launches make a sample."""
        return calibrate(self.timer, self._restore)

    def time(self, count: int) -> float:
        """Returns seconds per launch on the contents as they are."""
        self.count += count
        return sample_burst(self.timer, self._restore, count)

    def time_anew(self, draw: int) -> float:
        """Returns the seconds of a launch on the contents of a draw, written anew."""
        self.arguments.refresh(draw)
        return self.time(1)

    def time_separately(self, draws: Iterator[int], count: int) -> float:
        """Returns seconds per launch, each on contents of its own."""
        self.count += count
        return sample_separately(self.timer, lambda: self.arguments.refresh(next(draws)), count)


class TorchCandidate:
    """A config that is ready: a launch on each set of arguments. `forget` is called when it fails."""

    _calibration: Calibration | None = None
    launch_seconds, first_sample = 0.0, (0.0, "wall")

    def __init__(
        self, bound: Sequence[BoundLaunch], oracle: Oracle, sample_seconds: float, forget: Callable[[], object]
    ) -> None:
        self._bound, self._oracle, self._sample_seconds, self._forget = bound, oracle, sample_seconds, forget
        self._random = Random()
        self._separate = 0

    @property
    def launches(self) -> int:
        """Launches so far."""
        return sum(bound.count for bound in self._bound)

    @property
    def timers(self) -> list[HostTimer]:
        """The timers of all sets."""
        with reported_failure(self._forget):
            self._calibrate()
        return [bound.timer for bound in self._bound]

    def hurry(self) -> None:
        """Does nothing: no launch of it is so slow that there would not be time for a sample."""

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns what is wrong with the results on the first contents, and their fingerprint over two runs.

        The second finds other numbers in its outputs.
        """
        with reported_failure(self._forget):
            bound = self._bound[0]
            results = _copies(bound.run(0))
            if problem := self._find_problem(bound, 0, results):
                self._forget()
                return problem, ""
            first, again = _fingerprint(results), _copies(bound.run(0))
            if first == _fingerprint(again):
                return None, first
            if problem := self._find_problem(bound, 0, again):
                self._forget()
            return problem, "" if problem else VARIES

    def check(self, draw: int, *, launches: int) -> str | None:
        """Returns what is wrong with results on the contents of a draw, or that it began to remember them."""
        with reported_failure(self._forget):
            problem = self._examine(self._oracle.usable(draw), launches)
            if problem is None and self._began_to_remember():
                problem = (
                    "launches on contents that it has just seen are now much faster than others, and were not at "
                    "first: it began to remember results"
                )
            if problem:
                self._forget()
            return problem

    def _examine(self, draw: int, launches: int) -> str | None:
        """Returns what is wrong with results on the contents of a draw: when repeated, and after a launch on others."""
        place, began = self._place(draw), time.perf_counter()
        bound, others = self._bound[place], [*self._bound[:place], *self._bound[place + 1 :]]
        right: list[Any] | None = None
        if bound.arguments.has_outputs:
            bound.run(draw + 1)  # what it leaves is wrong for the first of the following
        for number in range(launches):
            results = bound.run(draw, None if number else Outputs.KEPT)
            copies = _copies(results)  # at once: a thread may write the results too late
            if right is None or not _same(copies, right):
                if problem := self._find_problem(bound, draw, copies):
                    return problem
                right = copies
            if time.perf_counter() - began > launches * REPEAT_SECONDS:
                break
        for call in range(LATER_CALLS if others else 0):
            others[0].run(0 if draw and not call else draw + 1 + call)
            if not _same(results, copies):
                return "what it returned changed with a later call: it returns the same memory again"
            if call and time.perf_counter() - began > launches * REPEAT_SECONDS:
                break
        return bound.arguments.damage()

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns seconds per launch on the contents of a draw.

        The first launch on new contents is not counted. If launches take long or remember results, each has contents
        of its own.
        """
        with reported_failure(self._forget):
            calibration = self._calibrate()
            draw = self._oracle.usable(draw) if audited else draw
            bound = self._bound[self._place(draw)]
            if self._separate:
                draws = _further_draws(draw)
                sampler = sustained_sampler(lambda: bound.time_separately(draws, self._separate), self._sample_seconds)
                seconds = sampler()
                if audited:
                    bound.time_anew(draw)
                    self._audit(bound, draw)
                return seconds
            bound.time_anew(draw)
            early = audited and self._random.random() < 0.5  # at once: a thread may write the results too late
            if early:
                self._audit(bound, draw)
            seconds = sustained_sampler(lambda: _sample(bound, calibration), self._sample_seconds)()
            if audited and not early:
                self._audit(bound, draw)
            return seconds

    def _place(self, draw: int) -> int:
        """Returns which set a draw selects; the first contents are those of the last set, too."""
        return draw % len(self._bound) if draw else len(self._bound) - 1

    def _calibrate(self) -> Calibration:
        if self._calibration is None:
            first, *others = self._bound
            for bound in self._bound:
                bound.run(self._new_draw())
            self._calibration = calibration = first.calibrate()
            for other in others:
                other.timer.use(first.timer.clock)
            if not calibration.warm_up:
                self._separate = calibration.burst
            elif seconds := self._seconds_on_new_contents(REMEMBERED_RATIO, REMEMBERED_SECONDS):
                self._separate = ceil(MIN_SAMPLE_SECONDS / seconds)
        return self._calibration

    def _began_to_remember(self) -> bool:
        is_burst = self._calibration is not None and not self._separate
        return is_burst and self._seconds_on_new_contents(2 * REMEMBERED_RATIO, 4 * REMEMBERED_SECONDS) > 0

    def _seconds_on_new_contents(self, ratio: float, seconds: float) -> float:
        """Returns how long a launch on new contents takes, if launches on contents that it has seen are much faster."""
        bound, firsts, nexts = self._bound[0], [], []
        for _ in range(COMPARED_LAUNCHES):
            draw = self._new_draw()
            firsts.append(bound.time_anew(draw))
            nexts.append(bound.time(1))  # nothing is written before it: that could be what it waits for
        return min(firsts) if remembers(firsts, nexts, ratio, seconds) else 0.0

    def _new_draw(self) -> int:
        return 1 + self._random.getrandbits(30)

    def _audit(self, bound: BoundLaunch, draw: int) -> None:
        """Raises WrongResult if the results of the latest launch are wrong."""
        if problem := self._find_problem(bound, draw, _copies(bound.results)):
            raise WrongResult(problem)

    def _find_problem(self, bound: BoundLaunch, draw: int, results: Sequence[Any]) -> str | None:
        return bound.arguments.damage() or self._oracle.compare(draw, results)


def _sample(bound: BoundLaunch, calibration: Calibration) -> float:
    """Returns seconds per launch of a burst, after uncounted ones."""
    bound.time(calibration.warm_up)
    return bound.time(calibration.burst)


def _further_draws(draw: int) -> Iterator[int]:
    """Yields the same draws for every candidate."""
    random = Random(draw)
    while True:
        yield 1 + random.getrandbits(30)


def _copies(results: Sequence[Any]) -> list[Any]:
    return [result.clone() for result in results]


def _same(results: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(results) == len(others) and all(map(same_bits, results, others))


def _fingerprint(results: Sequence[Any]) -> str:
    return fingerprint({str(i): bits_of(result).contiguous().numpy() for i, result in enumerate(results)})
