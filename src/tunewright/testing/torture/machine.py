"""A simulated device with known true times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from tunewright.errors import TunewrightError
from tunewright.testing.torture.disturbances import Disturbance, Floats, Timeline

BUILD_SECONDS = 0.1
"""Simulated seconds for the build of a candidate before its first launch."""

MAX_DRAWN = 4096
"""Maximum of launches simulated for one reading; of more, each simulated one counts several times."""


class Crash(TunewrightError):
    """Raised when a launch fails like an illegal memory access."""


class Refused(Crash):
    """Raised when the device refuses a launch, with the message that devices use."""


class Truth(msgspec.Struct, frozen=True):
    """True seconds per launch of every candidate, the default, and the candidates that fail.

    `crashes` is how many launches a candidate survives; `refused` ones are never launched. The default works.
    """

    seconds: tuple[float, ...]
    default: int
    crashes: dict[int, int] = {}
    refused: frozenset[int] = frozenset()

    @property
    def working(self) -> list[int]:
        """The candidates that neither crash nor are refused."""
        return [i for i in range(len(self.seconds)) if i not in self.crashes and i not in self.refused]

    def regret(self, choice: int) -> float:
        """Returns how much slower a choice is than the best that works, as a share."""
        return self.seconds[choice] / min(self.seconds[i] for i in self.working) - 1


class SimulatedMachine:
    """Candidates to launch, and a clock. Time passes only while something runs.

    A tuner may read `candidates` (their number), `default` (the one in use) and `now` (the simulated time). The suite
    reads `spent` (true seconds of launches), `launches` of each candidate, and `failed` candidates.
    """

    def __init__(self, truth: Truth, disturbance: Disturbance, seed: int | Sequence[int] = 0) -> None:
        self.candidates, self.default = len(truth.seconds), truth.default
        self.now = self.spent = 0.0
        self.launches: Counter[int] = Counter()
        self.failed: set[int] = set()
        self._truth, self._disturbance = truth, disturbance
        slowdown_rng, self._rng = np.random.default_rng(seed).spawn(2)
        self._timeline = Timeline(disturbance.slowdown(slowdown_rng))

    def run(self, candidate: int, count: int = 1) -> float:
        """Returns the seconds that the clock reads for `count` launches together."""
        drawn = min(count, MAX_DRAWN)
        took = self._launch(candidate, drawn, count / drawn)
        return float(self._disturbance.misread(self._rng, np.array([took.sum()]))[0])

    def each(self, candidate: int, count: int) -> Floats:
        """Returns the seconds that the clock reads for each of `count` launches."""
        return self._disturbance.misread(self._rng, self._launch(candidate, count))

    def _launch(self, candidate: int, drawn: int, weight: float = 1.0) -> Floats:
        """Returns the true seconds of launches; each simulated one counts `weight` times."""
        self._check(candidate, round(drawn * weight))
        work = self._truth.seconds[candidate] * weight * self._disturbance.jitter(self._rng, drawn)
        ends = self._timeline.end_times(self.now, work)
        took = np.diff(ends, prepend=self.now)
        self.now = float(ends[-1])
        self.spent += float(took.sum())
        return took

    def _check(self, candidate: int, count: int) -> None:
        if not self.launches[candidate]:
            self.now += BUILD_SECONDS
        self.launches[candidate] += count
        if candidate in self._truth.refused:
            self.failed.add(candidate)
            raise Refused(f"candidate {candidate}: too many resources requested for launch")
        if self.launches[candidate] > self._truth.crashes.get(candidate, np.inf):
            self.failed.add(candidate)
            raise Crash(f"candidate {candidate}: an illegal memory access was encountered")
