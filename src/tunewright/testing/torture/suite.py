"""Suite: every problem tuned twice, independently; what was chosen is held against the truth."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import NamedTuple

import msgspec

from tunewright.errors import TunewrightError
from tunewright.measure import race
from tunewright.testing.torture.machine import Machine, Truth
from tunewright.testing.torture.scenarios import SCENARIOS, Scenario
from tunewright.testing.torture.tuners import Tuner
from tunewright.testing.torture.weather import Weather

TIE = 0.01
"""How much slower than the best a choice may be, as a share, to be as good."""

VISIT = 2e-3
"""Seconds of launches in a visit of the race after a tuning."""


class Score(msgspec.Struct, frozen=True):
    """How a tuner did in a scenario, in two independent tunings of every problem.

    `flips` counts the pairs of tunings that chose differently, of the `pairs` in which both chose. `regret` is how
    much slower choices are than the best, as a share: the mean and the worst. `wrong` counts choices that are no tie
    with the best, `losers` those that lose to the default beyond doubt when raced against it afterwards. `lost` counts
    tunings without a choice that works, and those in which a failing candidate kept working ones from being tried.
    `kernel_seconds` are the simulated seconds that the launches of a tuning took, in the mean.
    """

    tuner: str
    scenario: str
    problems: int
    pairs: int
    flips: int
    regret: float
    worst_regret: float
    wrong: int
    losers: int
    lost: int
    kernel_seconds: float

    @property
    def flip_rate(self) -> float:
        """The share of pairs that flipped; 0 where no pair chose."""
        return self.flips / self.pairs if self.pairs else 0.0


def torture(tuner: Tuner, scenarios: Iterable[Scenario] = SCENARIOS, problems: int = 100, seed: int = 0) -> list[Score]:
    """The score of a tuner in each scenario; the same problems and the same weather for every tuner."""
    return [_score(tuner, scenario, problems, seed) for scenario in scenarios]


class _Tuning(NamedTuple):
    """What came of one tuning: a choice that works or None, whether work was lost, and how good the choice is."""

    choice: int | None
    lost: bool
    regret: float
    loser: bool
    kernel_seconds: float


def _score(tuner: Tuner, scenario: Scenario, problems: int, seed: int) -> Score:
    twice = [[_tuning(tuner, scenario, number, seed, run) for run in (1, 2)] for number in range(problems)]
    tunings = [tuning for pair in twice for tuning in pair]
    chosen = [tuning for tuning in tunings if tuning.choice is not None]
    pairs = [(one, other) for one, other in twice if one.choice is not None and other.choice is not None]
    return Score(
        tuner=tuner.name,
        scenario=scenario.name,
        problems=problems,
        pairs=len(pairs),
        flips=sum(one.choice != other.choice for one, other in pairs),
        regret=fmean(tuning.regret for tuning in chosen) if chosen else 0.0,
        worst_regret=max((tuning.regret for tuning in chosen), default=0.0),
        wrong=sum(tuning.regret > TIE for tuning in chosen),
        losers=sum(tuning.loser for tuning in chosen),
        lost=sum(tuning.lost for tuning in tunings),
        kernel_seconds=fmean(tuning.kernel_seconds for tuning in tunings),
    )


def _tuning(tuner: Tuner, scenario: Scenario, number: int, seed: int, run: int) -> _Tuning:
    truth, weather = scenario.problem(number, seed)
    machine = Machine(truth, weather, scenario.seeds(number, seed, run))
    choice: int | None
    try:
        choice = tuner.choose(machine)
    except TunewrightError:
        choice = None
    if choice not in truth.working:
        return _Tuning(None, True, 0.0, False, machine.spent)
    untried = [i for i in truth.working if not machine.launches[i]]
    loser = choice != truth.default and _loses(choice, truth, weather, scenario.seeds(number, seed, run, 1))
    return _Tuning(choice, bool(machine.failed and untried), truth.regret(choice), loser, machine.spent)


def _loses(choice: int, truth: Truth, weather: Weather, seeds: list[int]) -> bool:
    """Whether a choice is slower than the default beyond doubt, raced on another day with a clock that is right."""
    honest = msgspec.structs.replace(weather, misread=lambda rng, seconds: seconds)
    machine = Machine(truth, honest, seeds)

    def visit(candidate: int) -> float:
        count = max(1, round(VISIT / truth.seconds[candidate]))
        return machine.run(candidate, count) / count

    # No margin: however little it is slower, if there is no doubt.
    terms = race.Terms(margin=0.0, seconds=60.0)
    raced = race.run([lambda: visit(choice), lambda: visit(truth.default)], terms)
    return raced.leader == 1 and raced.standings[0].low > 1
