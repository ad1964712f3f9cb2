import numpy as np
import pytest

from tunewright import Knob, Space, Variant
from tunewright.strategies.exhaustive import Exhaustive
from tunewright.strategies.random import RandomSearch
from tunewright.testing.strategy_kit import SMALL, VARIED, StrategyContract, run


class TestExhaustive(StrategyContract):
    @pytest.fixture
    def make(self):
        return Exhaustive


class TestRandom(StrategyContract):
    @pytest.fixture
    def make(self):
        return RandomSearch


@pytest.mark.parametrize("make", [Exhaustive, RandomSearch])
def test_a_small_space_is_tried_whole(make) -> None:
    for space in (SMALL, VARIED):
        assert set(run(make(space, np.random.default_rng(0)), 3, 1000)) == set(space)


def test_random_draws_evenly() -> None:
    counts = np.zeros(len(SMALL))
    for seed in range(2000):
        counts[SMALL.index(RandomSearch(SMALL, np.random.default_rng(seed)).ask(1)[0])] += 1
    assert counts.min() > 0.6 * counts.mean()


def test_random_gives_a_small_variant_its_turn() -> None:
    space = Space(variants=[Variant("library"), Variant("blocked", Knob("a", range(100)), Knob("b", range(100)))])
    tried = run(RandomSearch(space, np.random.default_rng(0)), 1, 20)
    assert any(config["variant"] == "library" for config in tried)
