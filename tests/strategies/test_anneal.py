import numpy as np
import pytest

from tunewright import Config, Knob, Space
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.anneal import REHEAT_AFTER, Anneal
from tunewright.testing.strategy_kit import LARGE, StrategyContract, failed, run

BOWL = Space(*(Knob(f"k{i}", range(16)) for i in range(5)))


def bowl(config: Config) -> Trial:
    """Best at 11 everywhere."""
    return Trial(config, Timing((1e-3 * (1 + sum((value - 11) ** 2 for value in config.values())),)))


class TestAnneal(StrategyContract):
    @pytest.fixture
    def make(self):
        return Anneal


def test_it_walks_downhill_far_faster_than_chance() -> None:
    best = [min(bowl(c).seconds for c in run(Anneal(BOWL, np.random.default_rng(s)), 1, 150, bowl)) for s in range(5)]
    assert np.median(best) <= 5e-3  # a random draw as good comes once in 4,700


def test_it_starts_from_what_it_was_told_of() -> None:
    strategy = Anneal(BOWL, np.random.default_rng(0))
    default = Config({knob.name: 11 for knob in BOWL.knobs})
    strategy.tell([bowl(default)])
    (first,) = strategy.ask(1)
    assert sum(first[name] != default[name] for name in default) <= 4


def test_after_a_failure_it_goes_on_from_what_works() -> None:
    strategy = Anneal(LARGE, np.random.default_rng(1))
    start = LARGE.first
    strategy.tell([bowl(start)])
    for _ in range(20):
        (config,) = strategy.ask(1)
        strategy.tell([failed(config)])
    distances = [sum(config[n] != start[n] for n in start) for config in strategy.ask(20)]
    assert max(distances) < 8


def test_a_walk_that_stalls_is_warmed_up_from_one_of_the_best() -> None:
    strategy = Anneal(BOWL, np.random.default_rng(2))
    default = Config({knob.name: 11 for knob in BOWL.knobs})
    strategy.tell([bowl(default)])
    widths = []
    for _ in range(REHEAT_AFTER + 20):
        (config,) = strategy.ask(1)
        widths.append(sum(config[name] != default[name] for name in default))
        strategy.tell([bowl(config)])
    assert max(widths[-20:]) > 1
