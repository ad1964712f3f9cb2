"""Machine: a simulated device on which the truth is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from tunewright.errors import TunewrightError
from tunewright.testing.torture.weather import Floats, Sky, Weather

BUILD = 0.1
"""Simulated seconds that the first launch of a candidate waits for its build; the weather goes on meanwhile."""

MOST_DRAWN = 4096
"""How many launches of one reading are drawn; of more, those drawn stand for all."""


class Crash(TunewrightError):
    """A launch that failed as an illegal access does; nothing is known about the next candidate."""


class Refused(Crash):
    """A launch that the device would not take, said in the words devices use."""


class Truth(msgspec.Struct, frozen=True):
    """What only the suite knows: seconds per launch of every candidate, the default, and who does not work.

    `crashes` says how many launches a candidate survives; those `refused` are never launched. The default works.
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
        """How much slower a choice is than the best that works, as a share."""
        return self.seconds[choice] / min(self.seconds[i] for i in self.working) - 1


class Machine:
    """Candidates to launch, and a clock. Time passes only while something runs; another seed is another run.

    What a tuner may look at: `candidates`, how many there are, `default`, which of them is in use, and `now`, the
    simulated time. What a suite counts: `spent`, the seconds that launches really took, `launches` of each candidate,
    and `failed`, the candidates that crashed or were refused.
    """

    def __init__(self, truth: Truth, weather: Weather, seed: int | Sequence[int] = 0) -> None:
        self.candidates, self.default = len(truth.seconds), truth.default
        self.now = self.spent = 0.0
        self.launches: Counter[int] = Counter()
        self.failed: set[int] = set()
        self._truth, self._weather = truth, weather
        above, self._rng = np.random.default_rng(seed).spawn(2)
        self._sky = Sky(weather.sky(above))

    def run(self, candidate: int, count: int = 1) -> float:
        """Seconds that the clock reads for `count` launches together."""
        drawn = min(count, MOST_DRAWN)
        took = self._launch(candidate, drawn, count / drawn)
        return float(self._weather.misread(self._rng, np.array([took.sum()]))[0])

    def each(self, candidate: int, count: int) -> Floats:
        """Seconds that the clock reads for each of `count` launches."""
        return self._weather.misread(self._rng, self._launch(candidate, count))

    def _launch(self, candidate: int, drawn: int, weight: float = 1.0) -> Floats:
        """What launches really take; each drawn stands for `weight` of them."""
        self._check(candidate, round(drawn * weight))
        work = self._truth.seconds[candidate] * weight * self._weather.jitter(self._rng, drawn)
        ends = self._sky.ends(self.now, work)
        took = np.diff(ends, prepend=self.now)
        self.now = float(ends[-1])
        self.spent += float(took.sum())
        return took

    def _check(self, candidate: int, count: int) -> None:
        if not self.launches[candidate]:
            self.now += BUILD
        self.launches[candidate] += count
        if candidate in self._truth.refused:
            self.failed.add(candidate)
            raise Refused(f"candidate {candidate}: too many resources requested for launch")
        if self.launches[candidate] > self._truth.crashes.get(candidate, np.inf):
            self.failed.add(candidate)
            raise Crash(f"candidate {candidate}: an illegal memory access was encountered")
