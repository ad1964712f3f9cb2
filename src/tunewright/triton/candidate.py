"""Configs of a Triton kernel that are ready to run: raced by device events, or measured by a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf, isfinite
from random import Random
from typing import Any, Protocol

import numpy as np

from tunewright.cases.validation import VARIES, fingerprint
from tunewright.errors import BackendError
from tunewright.ports.candidate import HasClock, WrongResult
from tunewright.spaces.config import Config
from tunewright.triton import adapter
from tunewright.triton.argument_sets import ArgumentSet
from tunewright.triton.bursts import Burst
from tunewright.triton.judging import TritonJudge, damage, launch_and
from tunewright.triton.launching import BoundLaunchCall
from tunewright.triton.results import StoredResults, is_tensor, to_numpy

QUANTILES = (0.5, 0.2, 0.8)
"""The quantiles that Triton asks benchmarks for, and shows in `configs_timings`."""

REPEAT_SECONDS = 1e-3
"""Seconds that each of the launches of a check may take on average; if they take longer, there are fewer."""


class HasSets(Protocol):
    """What a candidate needs of its workload."""

    sets: list[ArgumentSet]
    judge: TritonJudge | None
    options: Any

    def noting_errors(self, config: Config) -> AbstractContextManager[None]: ...


class TritonCandidate:
    """A config bound to all sets of arguments, and judged on them."""

    def __init__(self, workload: HasSets, config: Config, launches: Sequence[BoundLaunchCall]) -> None:
        self._workload, self._config, self._launches = workload, config, launches
        self.launches = 0
        self.launch_seconds, self.first_sample = 0.0, (0.0, "wall")

    def hurry(self) -> None:
        """Does nothing: no launch of it is so slow that there would not be time for a sample."""

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns what is wrong with results on the caller's own arguments, and their fingerprint over two launches."""
        prints: list[str] = []

        def take_print() -> None:
            stored = self._workload.sets[0].stored.items()
            prints.append(fingerprint({name: to_numpy(tensor) for name, tensor in stored if is_tensor(tensor)}))

        with self._workload.noting_errors(self._config):
            look = take_print if self._workload.options.fingerprints else None
            problem = self._judge(0, 0, 2, look)
        if problem or not prints:
            return problem, ""
        return None, prints[0] if len(set(prints)) == 1 else VARIES

    def check(self, draw: int, *, launches: int) -> str | None:
        """Launches a few times on each set of arguments, and returns what is wrong with the results."""
        with self._workload.noting_errors(self._config):
            count = max(1, launches // len(self._workload.sets))
            last = len(self._workload.sets) - 1
            further = range(1, self._workload.sets[last].contents.kinds)
            checks = [(place, draw, count) for place in reversed(range(last + 1))]
            checks += [(last, draw + number, 2) for number in further]
            problems = (self._judge(*each) for each in checks)
            return next((problem for problem in problems if problem), None)

    def _judge(self, place: int, draw: int, launches: int, look: Callable[[], None] | None = None) -> str | None:
        """Launches a few times in a row on the same contents, and returns the first problem.

        Of two launches, one finds poison where it stores, the other what the caller had there: none can rely on either.
        """
        if self._workload.judge is None:
            return None
        arguments, launch = self._workload.sets[place], self._launches[place]
        arguments.repair()
        expected = self._workload.judge.expected(arguments, arguments.draw(draw))
        arguments.reset(draw)
        began = time.perf_counter()
        problems: list[str | None] = []

        def compare() -> None:
            problems.append(expected.mismatch(arguments.stored))
            if look:
                look()

        for number in range(launches):
            if number > 1 and time.perf_counter() - began > launches * REPEAT_SECONDS:
                break
            arguments.refresh_results(poisoned=number % 2 == 0)
            self.launches += 1
            launch_and(launch, compare)
            if problems[-1]:
                return damage(arguments) or problems[-1]
        return damage(arguments)


class RacedCandidate(TritonCandidate):
    """A config that was launched once, and is timed in bursts."""

    def __init__(
        self, workload: HasSets, config: Config, launches: Sequence[BoundLaunchCall], clock: adapter.EventClock
    ) -> None:
        super().__init__(workload, config, launches)
        self._burst = Burst(clock)
        self._random = Random()
        launches[0]()
        clock.wait()  # errors of a launch are raised when it ends
        self.launches = 1

    @property
    def timers(self) -> list[HasClock]:
        """Its burst."""
        self._calibrate()
        return [self._burst]

    def _calibrate(self) -> None:
        if not self._burst.launches:
            arguments = self._workload.sets[0]
            arguments.reset(0)
            self._burst.calibrate(_JudgedLaunches(self._launches[0], arguments))
            self.launches += 1

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns seconds per launch of a burst; of an audited one, a random launch is judged."""
        with self._workload.noting_errors(self._config):
            self._calibrate()
            place = draw % len(self._workload.sets)
            arguments = self._workload.sets[place]
            run = _JudgedLaunches(self._launches[place], arguments)
            if audited and self._workload.judge is not None:
                arguments.repair()
                expected = self._workload.judge.expected(arguments, arguments.draw(draw))
                run.judge(self._random.randrange(self._burst.launches), expected, poisoned=self._random.random() < 0.5)
            arguments.reset(draw)
            self.launches += self._burst.launches
            seconds = self._burst(run)
            if audited and (problem := damage(arguments) or run.problem):
                raise WrongResult(problem)
        return seconds


class _JudgedLaunches:
    """The launches of a burst: arguments are restored before each, and the results of one of them may be judged."""

    def __init__(self, launch: BoundLaunchCall, arguments: ArgumentSet) -> None:
        self._launch, self._arguments = launch, arguments
        self._number, self._judged, self._poisoned = -1, -1, False
        self._expected: StoredResults | None = None
        self.problem: str | None = None

    def judge(self, number: int, expected: StoredResults, *, poisoned: bool) -> None:
        """Has one of the launches judged."""
        self._judged, self._expected, self._poisoned = number, expected, poisoned

    def before(self) -> None:
        self._number += 1
        if self._number == self._judged:
            self._arguments.refresh_results(poisoned=self._poisoned)
        else:
            self._arguments.refresh()
        self._launch.before()

    def run(self) -> None:
        self._launch.run()

    def after(self) -> None:
        if self._expected is not None and self._number == self._judged:
            self.problem = self._expected.mismatch(self._arguments.stored)
        self._launch.after()


class _BenchmarkClock:
    """Whatever a benchmark measures by."""

    clock = "do_bench"


class BenchmarkedCandidate(TritonCandidate):
    """A config that was measured once, by the benchmark of the user or the driver; `times` is what that returned."""

    def __init__(
        self, workload: HasSets, config: Config, launches: Sequence[BoundLaunchCall], bench: Callable[..., Any]
    ) -> None:
        super().__init__(workload, config, launches)
        self.times = bench(launches[0], quantiles=QUANTILES)

    @property
    def timers(self) -> list[HasClock]:
        """The clock of the benchmark."""
        return [_BenchmarkClock()]

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns the seconds that the benchmark returned; raises BackendError if they are no time."""
        median = float(self.times[0] if isinstance(self.times, Sequence | np.ndarray) else self.times)
        if not isfinite(median):
            with self._workload.noting_errors(self._config):
                raise BackendError(f"the benchmark returned {median} ms, which is not a valid time")
        return max(1e-3 * median, 1e-12)
