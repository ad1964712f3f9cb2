"""Race: interleaved rounds, paired comparison, elimination; a leader and those that tie with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import TunewrightError
from tunewright.measure.clock import Visit
from tunewright.measure.stats import SURE, UNKNOWN, paired
from tunewright.model.conditions import Conditions

GROSS, CLEAR = 1.6, 1.3
"""How many times slower than the best a candidate may be in each of the first rounds; and in twice as many."""

FIRST_TEST = 6
"""The round from which differences are tested; with fewer pairs, hardly any could be."""

CLOSE = 1.1
"""How many times the leader's time is close: what a mood of the machine, which may last for seconds, can make up."""

SPREAD = 40
"""Rounds over which the span of a race is spread."""

TIE = 1.5
"""How many margins a candidate may seem slower and still be as good: beyond one, or two runs would not agree."""

RECEIPT = 12
"""Rounds that a candidate runs whom others are compared with, so that the gain over it is known with an interval."""


class Stopped(TunewrightError):
    """Raised by a visit to end a race: what it has shown by then is its result."""


class Standing(msgspec.Struct, frozen=True):
    """How one candidate did: its samples, and its time over the leader's with an interval.

    `left` is the round after which it was eliminated; None if it stayed to the end.
    """

    samples: tuple[float, ...]
    ratio: float
    low: float
    high: float
    left: int | None = None


class Race(msgspec.Struct, frozen=True):
    """What a race showed: who leads, and how everyone stands to the leader.

    `settled` says that everyone left is known to within the `margin`; if it is False, the rounds or the seconds ended
    first.
    """

    leader: int
    standings: tuple[Standing, ...]
    margin: float
    settled: bool
    conditions: Conditions | None = None
    clock: str = ""

    @property
    def tested(self) -> bool:
        """Whether there were rounds enough to compare anything but gross differences."""
        return self.settled or len(self.standings[self.leader].samples) >= FIRST_TEST

    @property
    def ties(self) -> list[int]:
        """The leader, and those not shown to be slower than it by more than may be neglected."""
        ends = [(i, standing) for i, standing in enumerate(self.standings) if standing.left is None]
        return [i for i, standing in ends if standing.low <= 1 or self.equal(i)]

    def equal(self, number: int) -> bool:
        """Whether a candidate is as good as the leader, as far as its centre tells."""
        return self.standings[number].ratio <= 1 + TIE * self.margin

    @property
    def resolution(self) -> float | None:
        """The smallest difference this race could have told: half the widest interval of those that tie.

        1 where it told nothing; None if the leader won: what was told is then larger than any doubt.
        """
        ties = [self.standings[i] for i in self.ties if i != self.leader]
        return min(1.0, max(float(np.log(one.high / one.low)) / 2 for one in ties)) if ties else None

    def ratio(self, one: int, other: int) -> tuple[float, float, float]:
        """The time of one candidate over another's, from the rounds in which both ran, with a 95 % interval."""
        logs = [np.log(self.standings[i].samples).tolist() for i in (one, other)]
        centre, low, high = (float(np.exp(x)) for x in paired(_difference(*logs), SURE))
        return centre, low, high

    def most(self, one: int, other: int) -> float:
        """The largest of these ratios in any round."""
        pairs = zip(self.standings[one].samples, self.standings[other].samples, strict=False)
        return max(mine / yours for mine, yours in pairs)


class Terms(msgspec.Struct, frozen=True):
    """What a race aims at and what it may cost."""

    margin: float = 0.01
    rounds: int = 200
    seconds: float = 10.0
    seed: int = 0
    span: float = 0.0  # seconds that a race among close candidates lasts at least, to meet more than one mood
    fixed: bool = False  # all run all rounds: who stops when it shows what it should, is fooled by luck
    gross: int = 2  # rounds after which gross losers leave; by the wall clock more, where neighbours may strike twice


def run(
    visits: Sequence[Visit],
    terms: Terms | None = None,
    *,
    kept: Collection[int] = (),
    after: Callable[[int, int], None] | None = None,
) -> Race:
    """Race candidates against each other, each round in a new random order.

    All that are left run in every round, so that a comparison is between neighbours in time: drift, clocks and other
    people's work strike both sides alike. Gross losers leave after two or four rounds; from the sixth on, who is slower
    than the leader by more than the margin, beyond doubt. It ends when everyone left is known to within the margin:
    then nobody can be more than the margin faster than the leader. Close ones are not judged before the `span` of the
    terms is over, and rounds until then are spread over it.

    Those `kept` are there to be compared with, and run at least twelve rounds. `after` is told the number of each
    round and how many are left.
    """
    field = _Field(len(visits), terms or Terms(), kept)
    rng, began = np.random.default_rng(field.terms.seed), time.monotonic()
    while not field.over:
        fresh: dict[int, float] = {}
        for i in rng.permutation(field.staying):
            if field.round and time.monotonic() - began > field.terms.seconds:
                return field.result()  # a round that not everyone ran compares nobody
            try:
                fresh[int(i)] = float(np.log(visits[i]()))
            except Stopped:
                if not field.round:
                    raise
                return field.result()
        field.add(fresh, time.monotonic() - began)
        if after:
            after(field.round, len(field.staying))
        if field.hurried and not field.over:
            time.sleep(field.terms.span / SPREAD)
    return field.result()


def among(race: Race, ran: Sequence[int], count: int) -> Race:
    """The race as one of `count` candidates, of whom only those numbered in `ran` could run."""
    worst = float(np.exp(UNKNOWN))
    absent = Standing((), worst, worst, worst, 0)
    standings = dict(zip(ran, race.standings, strict=True))
    every = tuple(standings.get(i, absent) for i in range(count))
    return msgspec.structs.replace(race, leader=ran[race.leader], standings=every)


def retold(samples: Sequence[Sequence[float]], left: Mapping[int, int], margin: float) -> Race:
    """The race that gave these samples, judged once more; `left` says who was eliminated, and after which round."""
    field = _Field(len(samples), Terms(margin=margin), ())
    field.logs, field.left = [np.log(own).tolist() for own in samples], dict(left)
    field.round = max(map(len, samples))
    return field.result()


class _Field:
    """A race under way: the logarithms of everyone's samples, who has left when, and whether it is settled."""

    def __init__(self, size: int, terms: Terms, kept: Collection[int]) -> None:
        self.terms, self.kept = terms, kept
        self.logs: list[list[float]] = [[] for _ in range(size)]
        self.left: dict[int, int] = {}
        self.round = 0
        self.elapsed = 0.0
        self.settled = False

    @property
    def staying(self) -> list[int]:
        return [i for i in range(len(self.logs)) if i not in self.left]

    @property
    def over(self) -> bool:
        return self.settled or self.round >= self.terms.rounds

    @property
    def hurried(self) -> bool:
        """Whether close candidates have met too little of the machine to be judged."""
        return self.round >= FIRST_TEST and self.elapsed < self.terms.span

    def add(self, fresh: dict[int, float], elapsed: float) -> None:
        """A whole round, and what follows from it."""
        self.round += 1
        self.elapsed = elapsed
        for i, log in fresh.items():
            self.logs[i].append(log)
        if self.terms.fixed:
            return
        if self.round == self.terms.gross:
            self._glance(GROSS)
        elif self.round == 2 * self.terms.gross:
            self._glance(CLEAR)
        if self.round >= FIRST_TEST:
            self._test()
        # Alone from the start, one visit is all there is to see; left alone, the others have been seen.
        self.settled = self.settled or len(self.staying) == 1

    def _leave(self, losers: Iterable[int]) -> None:
        self.left |= {i: self.round for i in list(losers) if i not in self.kept or self.round >= RECEIPT}

    def _glance(self, times: float) -> None:
        best = min(max(self.logs[i]) for i in self.staying)
        self._leave(i for i in self.staying if min(self.logs[i]) > best + np.log(times))

    def _test(self) -> None:
        leader, margin = self.leader, np.log1p(self.terms.margin)
        apart = {i: paired(_difference(self.logs[i], self.logs[leader])) for i in self.staying if i != leader}
        least = np.log(CLOSE) if self.hurried else TIE * margin
        self._leave(i for i, (centre, low, _) in apart.items() if low > margin and centre > least)
        widths = [high - low for i, (_, low, high) in apart.items() if i not in self.left]
        seen = self.round >= RECEIPT or not self.kept
        self.settled = seen and not self.hurried and all(width < 2 * margin for width in widths)

    @property
    def leader(self) -> int:
        """The lowest centre, after taking out of each round what it did to everyone; trimmed as differences are."""
        staying = self.staying
        table = np.array([self.logs[i] for i in staying])
        table = np.sort(table - np.median(table, axis=0), axis=1)
        cut = self.round // 5
        return staying[int(np.argmin(table[:, cut : self.round - cut].mean(axis=1)))]

    def result(self) -> Race:
        if self.kept and not self.settled:  # out of time: those kept are judged by what there is
            self.kept = ()
            if self.round >= FIRST_TEST:
                self._test()
            elif self.round >= self.terms.gross:
                self._glance(GROSS)
            self.settled = self.settled or len(self.staying) == 1
        leader, standings = self.leader, []
        for i, own in enumerate(self.logs):
            bounds = paired(_difference(own, self.logs[leader])) if i != leader else (0.0, 0.0, 0.0)
            ratio, low, high = (float(np.exp(bound)) for bound in bounds)
            standings.append(Standing(tuple(float(x) for x in np.exp(own)), ratio, low, high, self.left.get(i)))
        return Race(leader, tuple(standings), self.terms.margin, self.settled)


def _difference(one: Sequence[float], other: Sequence[float]) -> NDArray[np.float64]:
    """Log ratios of two candidates over the rounds in which both ran."""
    both = min(len(one), len(other))
    return np.subtract(one[:both], other[:both], dtype=np.float64)
