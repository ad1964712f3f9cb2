"""The torture suite: tunes every problem twice, independently, and compares the choices with the truth."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import NamedTuple

import msgspec

from tunewright.errors import TunewrightError
from tunewright.measure import race
from tunewright.testing.torture.disturbances import Disturbance
from tunewright.testing.torture.machine import SimulatedMachine, Truth
from tunewright.testing.torture.scenarios import SCENARIOS, Scenario
from tunewright.testing.torture.tuners import Tuner

TIE = 0.01
"""How much slower than the best a choice may be, as a share, to count as a tie."""

SAMPLE_SECONDS = 2e-3
"""Seconds of launches in one sample of the race after a tuning."""


class TortureScore(msgspec.Struct, frozen=True):
    """Score of a tuner in a scenario, from two independent tunings of every problem.

    `flips` counts the pairs of tunings that chose differently, of the `pairs` in which both chose. `regret` is how
    much slower choices are than the best, as a share: the mean and the worst. `wrong` counts choices that are no tie
    with the best, `losers` those that lose to the default beyond doubt when result against it afterwards. `lost` counts
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
        """Share of pairs that flipped; 0 without pairs."""
        return self.flips / self.pairs if self.pairs else 0.0


def torture(
    tuner: Tuner, scenarios: Iterable[Scenario] = SCENARIOS, problems: int = 100, seed: int = 0
) -> list[TortureScore]:
    """Returns the score of a tuner in each scenario; problems and disturbances are the same for every tuner."""
    return [_score(tuner, scenario, problems, seed) for scenario in scenarios]


class _Tuning(NamedTuple):
    """Result of one tuning: a working choice or None, whether work was lost, and how good the choice is."""

    choice: int | None
    lost: bool
    regret: float
    loser: bool
    kernel_seconds: float


def _score(tuner: Tuner, scenario: Scenario, problems: int, seed: int) -> TortureScore:
    twice = [[_run_tuning(tuner, scenario, number, seed, run) for run in (1, 2)] for number in range(problems)]
    tunings = [tuning for pair in twice for tuning in pair]
    chosen = [tuning for tuning in tunings if tuning.choice is not None]
    pairs = [(first, second) for first, second in twice if first.choice is not None and second.choice is not None]
    return TortureScore(
        tuner=tuner.name,
        scenario=scenario.name,
        problems=problems,
        pairs=len(pairs),
        flips=sum(first.choice != second.choice for first, second in pairs),
        regret=fmean(tuning.regret for tuning in chosen) if chosen else 0.0,
        worst_regret=max((tuning.regret for tuning in chosen), default=0.0),
        wrong=sum(tuning.regret > TIE for tuning in chosen),
        losers=sum(tuning.loser for tuning in chosen),
        lost=sum(tuning.lost for tuning in tunings),
        kernel_seconds=fmean(tuning.kernel_seconds for tuning in tunings),
    )


def _run_tuning(tuner: Tuner, scenario: Scenario, number: int, seed: int, run: int) -> _Tuning:
    truth, disturbance = scenario.problem(number, seed)
    machine = SimulatedMachine(truth, disturbance, scenario.seeds(number, seed, run))
    choice: int | None
    try:
        choice = tuner.choose(machine)
    except TunewrightError:
        choice = None
    if choice not in truth.working:
        return _Tuning(None, True, 0.0, False, machine.spent)
    untried = [i for i in truth.working if not machine.launches[i]]
    loser = choice != truth.default and _is_slower(choice, truth, disturbance, scenario.seeds(number, seed, run, 1))
    return _Tuning(choice, bool(machine.failed and untried), truth.regret(choice), loser, machine.spent)


def _is_slower(choice: int, truth: Truth, disturbance: Disturbance, seeds: list[int]) -> bool:
    """Returns whether a choice is significantly slower than the default, in a later race with a correct clock."""
    honest = msgspec.structs.replace(disturbance, misread=lambda rng, seconds: seconds)
    machine = SimulatedMachine(truth, honest, seeds)

    def sample(candidate: int) -> float:
        count = max(1, round(SAMPLE_SECONDS / truth.seconds[candidate]))
        return machine.run(candidate, count) / count

    # No margin: any significant slowdown counts.
    options = race.RaceOptions(margin=0.0, seconds=60.0)
    result = race.run_race([lambda: sample(choice), lambda: sample(truth.default)], options)
    return result.leader == 1 and result.standings[0].low > 1
