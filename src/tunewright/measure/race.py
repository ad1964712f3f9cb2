"""Races: candidates timed in interleaved rounds, compared in pairs and eliminated, until a leader and ties remain."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import TunewrightError
from tunewright.lazy_names import lazy_method
from tunewright.measure.clock import Sampler
from tunewright.model.conditions import Conditions
from tunewright.model.trial import Failure
from tunewright.stats import SURE, UNKNOWN, paired, trimmed_mean

GROSS_RATIO, CLEAR_RATIO = 1.6, 1.3
"""Slowdowns over the best that eliminate a candidate: in each of the first rounds; in twice as many."""

FIRST_TEST = 6
"""The first round with a statistical test; fewer pairs could hardly prove anything."""

CLOSE_RATIO = 1.1
"""Candidates this close to the leader may change places with the state of the machine, which lasts for seconds."""

SPREAD_ROUNDS = 40
"""Rounds over which the span of a race is spread."""

TIE_MARGINS = 1.5
"""How many margins slower a candidate may seem and still tie: more than one, or two runs would not agree."""

PROTECTED_ROUNDS = 12
"""Rounds that a protected candidate runs, so that the gain over it has a confidence interval."""


class StopRace(TunewrightError):
    """Raised by a sampler to end a race; the rounds so far are its result."""


class Standing(msgspec.Struct, frozen=True):
    """The result of one candidate: its samples, and its time relative to the leader's with an interval.

    `left` is the round after which it was eliminated; None if it stayed to the end.
    """

    samples: tuple[float, ...]
    ratio: float
    low: float
    high: float
    left: int | None = None


class Race(msgspec.Struct, frozen=True):
    """The result of a race: the leader, and the standing of every candidate.

    `settled` is True if every remaining candidate is known to within the `margin`; False if the rounds or the seconds
    ran out before.
    """

    leader: int
    standings: tuple[Standing, ...]
    margin: float
    settled: bool
    conditions: Conditions | None = None
    clock: str = ""
    failed: tuple[tuple[int, Failure], ...] = ()
    __repr__ = lazy_method("tunewright.report.summary", "race_text")

    @property
    def failures(self) -> dict[int, Failure]:
        """The candidates that were wrong or failed, by number; they have no samples."""
        return dict(self.failed)

    @property
    def is_empty(self) -> bool:
        """Whether no candidate was timed."""
        return not any(standing.samples for standing in self.standings)

    @property
    def tested(self) -> bool:
        """Whether there were enough rounds to detect more than gross differences."""
        return not self.is_empty and (self.settled or len(self.standings[self.leader].samples) >= FIRST_TEST)

    @property
    def ties(self) -> list[int]:
        """The leader and the candidates not shown to be slower by more than the tie margin."""
        remaining = [(i, standing) for i, standing in enumerate(self.standings) if standing.left is None]
        return [i for i, standing in remaining if standing.low <= 1 or self.equal(i)]

    def equal(self, number: int) -> bool:
        """Whether a candidate is as good as the leader by its point estimate."""
        return self.standings[number].ratio <= 1 + TIE_MARGINS * self.margin

    @property
    def resolution(self) -> float | None:
        """The smallest difference this race could have detected: half the widest interval of the ties.

        1 if it could detect nothing; None if the leader won without ties.
        """
        ties = [self.standings[i] for i in self.ties if i != self.leader]
        return min(1.0, max(float(np.log(tie.high / tie.low)) / 2 for tie in ties)) if ties else None

    def ratio(self, first: int, second: int) -> tuple[float, float, float]:
        """Returns the time of one candidate over another's, from the rounds in which both ran, with a 95 % interval."""
        logs = [np.log(self.standings[i].samples).tolist() for i in (first, second)]
        center, low, high = (float(np.exp(x)) for x in paired(_log_ratios(*logs), SURE))
        return center, low, high

    def max_ratio(self, first: int, second: int) -> float:
        """Returns the largest ratio of their times in any round."""
        pairs = zip(self.standings[first].samples, self.standings[second].samples, strict=False)
        return max(numerator / denominator for numerator, denominator in pairs)


class RaceOptions(msgspec.Struct, frozen=True):
    """The precision and the cost limits of a race."""

    margin: float = 0.01
    rounds: int = 200
    seconds: float = 10.0
    seed: int = 0
    limit: float = 0.0  # seconds after which a worker is ended that races, with what it does before; 0: no limit
    until: float = 0.0  # the time of day at which the limit ends
    span: float = 0.0  # minimum seconds of a race among close candidates, to cover several states of the machine
    fixed: bool = False  # all candidates run all rounds: stopping on a good result would favor lucky candidates
    gross: int = 3  # rounds after which gross losers leave; more by the wall clock, which other programs may disturb


def run_race(
    samplers: Sequence[Sampler],
    options: RaceOptions | None = None,
    *,
    protected: Collection[int] = (),
    after: Callable[[int, int], None] | None = None,
) -> Race:
    """Races candidates against each other, in a new random order each round.

    All remaining candidates run in every round, so comparisons are between neighbors in time: drift, clock changes and
    other programs affect both sides alike. Gross losers leave after three or six rounds; from the sixth round on, so
    does a candidate that is significantly slower than the leader by more than the margin. The race ends when every
    remaining candidate is known to within the margin. Close candidates are not judged before the `span` is over, and
    the rounds until then are spread over it.

    `protected` candidates are kept for comparison, for at least twelve rounds. `after` is called with the number of
    each round and the number of remaining candidates.
    """
    state = _RaceState(len(samplers), options or RaceOptions(), protected)
    rng, began = np.random.default_rng(state.options.seed), time.monotonic()
    while not state.over:
        samples: dict[int, float] = {}
        for i in rng.permutation(state.remaining):
            if state.round and time.monotonic() - began > state.options.seconds:
                return state.result()  # an incomplete round compares nothing
            try:
                samples[int(i)] = float(np.log(samplers[i]()))
            except StopRace:
                if not state.round:
                    raise
                return state.result()
        state.add(samples, time.monotonic() - began)
        if after:
            after(state.round, len(state.remaining))
        if state.within_span and not state.over:
            time.sleep(state.options.span / SPREAD_ROUNDS)
    return state.result()


def place_among(race: Race, numbers: Sequence[int], count: int) -> Race:
    """Returns the race as one of `count` candidates, of which only those in `numbers` could run."""
    worst = float(np.exp(UNKNOWN))
    absent = Standing((), worst, worst, worst, 0)
    standings = dict(zip(numbers, race.standings, strict=True))
    every = tuple(standings.get(i, absent) for i in range(count))
    return msgspec.structs.replace(race, leader=numbers[race.leader], standings=every)


def empty_race(count: int, margin: float, failures: dict[int, Failure]) -> Race:
    """Returns the race of `count` candidates of which none was timed."""
    worst = float(np.exp(UNKNOWN))
    return Race(
        0, (Standing((), worst, worst, worst, 0),) * count, margin, settled=False, failed=tuple(failures.items())
    )


def replay_race(samples: Sequence[Sequence[float]], left: Mapping[int, int], margin: float) -> Race:
    """Returns the race with these samples, judged again; `left` maps eliminated candidates to their last round."""
    state = _RaceState(len(samples), RaceOptions(margin=margin), ())
    state.logs, state.left = [np.log(own).tolist() for own in samples], dict(left)
    state.round = max(map(len, samples))
    return state.result()


class _RaceState:
    """A running race: the logarithms of all samples, who left when, and whether it is settled."""

    def __init__(self, size: int, options: RaceOptions, protected: Collection[int]) -> None:
        self.options, self.protected = options, protected
        self.logs: list[list[float]] = [[] for _ in range(size)]
        self.left: dict[int, int] = {}
        self.round = 0
        self.elapsed = 0.0
        self.settled = False

    @property
    def remaining(self) -> list[int]:
        return [i for i in range(len(self.logs)) if i not in self.left]

    @property
    def over(self) -> bool:
        return self.settled or self.round >= self.options.rounds

    @property
    def within_span(self) -> bool:
        """Whether it is too early to judge close candidates."""
        return self.round >= FIRST_TEST and self.elapsed < self.options.span

    def add(self, samples: dict[int, float], elapsed: float) -> None:
        """Adds a complete round and eliminates losers."""
        self.round += 1
        self.elapsed = elapsed
        for i, log in samples.items():
            self.logs[i].append(log)
        if self.options.fixed:
            return
        if self.round == self.options.gross:
            self._drop_gross_losers(GROSS_RATIO)
        elif self.round == 2 * self.options.gross:
            self._drop_gross_losers(CLEAR_RATIO)
        if self.round >= FIRST_TEST:
            self._test()
        # A single candidate needs one sample; a last remaining one has been compared with the others.
        self.settled = self.settled or len(self.remaining) == 1

    def _eliminate(self, losers: Iterable[int]) -> None:
        can_leave = self.round >= PROTECTED_ROUNDS
        self.left |= {i: self.round for i in list(losers) if i not in self.protected or can_leave}

    def _drop_gross_losers(self, ratio: float) -> None:
        best = min(max(self.logs[i]) for i in self.remaining)
        self._eliminate(i for i in self.remaining if min(self.logs[i]) > best + np.log(ratio))

    def _test(self) -> None:
        leader, margin = self.leader, np.log1p(self.options.margin)
        intervals = {i: paired(_log_ratios(self.logs[i], self.logs[leader])) for i in self.remaining if i != leader}
        min_gap = np.log(CLOSE_RATIO) if self.within_span else TIE_MARGINS * margin
        self._eliminate(i for i, (center, low, _) in intervals.items() if low > margin and center > min_gap)
        widths = [high - low for i, (_, low, high) in intervals.items() if i not in self.left]
        protected_done = self.round >= PROTECTED_ROUNDS or not self.protected
        self.settled = protected_done and not self.within_span and all(width < 2 * margin for width in widths)

    @property
    def leader(self) -> int:
        """The candidate with the lowest trimmed mean, after subtracting the median of each round."""
        remaining = self.remaining
        table = np.array([self.logs[i] for i in remaining])
        table = np.sort(table - np.median(table, axis=0), axis=1)
        return remaining[int(np.argmin(trimmed_mean(table)))]

    def result(self) -> Race:
        if self.protected and not self.settled:  # out of time: protected candidates are judged by the rounds so far
            self.protected = ()
            if self.round >= FIRST_TEST:
                self._test()
            elif self.round >= self.options.gross:
                self._drop_gross_losers(GROSS_RATIO)
            self.settled = self.settled or len(self.remaining) == 1
        leader, standings = self.leader, []
        for i, own in enumerate(self.logs):
            bounds = paired(_log_ratios(own, self.logs[leader])) if i != leader else (0.0, 0.0, 0.0)
            ratio, low, high = (float(np.exp(bound)) for bound in bounds)
            standings.append(Standing(tuple(float(x) for x in np.exp(own)), ratio, low, high, self.left.get(i)))
        return Race(leader, tuple(standings), self.options.margin, self.settled)


def _log_ratios(first: Sequence[float], second: Sequence[float]) -> NDArray[np.float64]:
    """Returns the log ratios of two candidates over the rounds in which both ran."""
    rounds = min(len(first), len(second))
    return np.subtract(first[:rounds], second[:rounds], dtype=np.float64)
