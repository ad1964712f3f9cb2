import numpy as np
import pytest

from tunewright import Config, Knob, Space
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.evolve import FOUNDERS, Evolve, Population
from tunewright.strategies.neighborhood import Neighborhood
from tunewright.testing.strategy_kit import LARGE, SMALL, StrategyContract, run, timed

BOWL = Space(*(Knob(f"k{i}", range(16)) for i in range(5)))


def bowl(config: Config) -> Trial:
    """Best at 11 everywhere."""
    return Trial(config, Timing((1e-3 * (1 + sum((value - 11) ** 2 for value in config.values())),)))


class TestEvolve(StrategyContract):
    @pytest.fixture
    def make(self):
        return Evolve


def test_it_breeds_better_than_chance() -> None:
    best = [min(bowl(c).seconds for c in run(Evolve(BOWL, np.random.default_rng(s)), 1, 150, bowl)) for s in range(5)]
    assert np.median(best) <= 9e-3  # a random draw as good comes once in 960


def test_founders_come_before_children() -> None:
    founders = run(Evolve(LARGE, np.random.default_rng(0)), 1, FOUNDERS)
    distances = [sum(a[n] != b[n] for n in a) for a in founders for b in founders if a is not b]
    assert np.mean(distances) > 5  # of eight knobs: strangers to each other


def test_a_population_keeps_the_best_and_of_equals_the_earlier() -> None:
    population = Population(Neighborhood(SMALL, np.random.default_rng(0)), np.random.default_rng(0), size=3)
    configs = list(SMALL)[:5]
    for config, value in zip(configs, [2.0, 1.0, 2.0, float("inf"), 2.0], strict=True):
        population.add(config, value)
    assert list(population) == [configs[1], configs[0], configs[2]]


def test_the_only_neighbours_left_are_found() -> None:
    strategy = Evolve(SMALL, np.random.default_rng(0))
    every = list(SMALL)
    strategy.tell([timed(config) for config in every[:-1]])
    assert list(strategy.ask(2)) == every[-1:]
