import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from tunewright import Knob, Rule, Space, Variant
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.anneal import Anneal
from tunewright.strategies.evolve import Evolve
from tunewright.strategies.exhaustive import Exhaustive
from tunewright.strategies.neighborhood import Neighborhood, cost
from tunewright.strategies.random import MAX_INDEXED, RandomSearch
from tunewright.testing.strategy_kit import SMALL, TIED, VARIED, StrategyContract, failed, run, timed


class TestExhaustive(StrategyContract):
    samples = False

    @pytest.fixture
    def make(self):
        return Exhaustive


class TestRandom(StrategyContract):
    @pytest.fixture
    def make(self):
        return RandomSearch


def test_random_draws_evenly() -> None:
    counts = np.zeros(len(SMALL))
    for seed in range(2000):
        counts[SMALL.index(RandomSearch(SMALL, np.random.default_rng(seed)).ask(1)[0])] += 1
    assert counts.min() > 0.6 * counts.mean()


def test_random_gives_a_small_variant_its_turn() -> None:
    space = Space(variants=[Variant("library"), Variant("blocked", Knob("a", range(100)), Knob("b", range(100)))])
    tried = run(RandomSearch(space, np.random.default_rng(0)), 1, 20)
    assert any(config["variant"] == "library" for config in tried)


def test_a_large_space_with_few_configs_is_proposed_whole() -> None:
    # Sampling runs dry before the space does; what is left is numbered and dealt.
    equal = Rule("a equals b", lambda a, b: a == b)
    space = Space(Knob("a", range(1100)), Knob("b", range(1100)), rules=[equal])
    assert space.combinations > MAX_INDEXED
    asked = run(RandomSearch(space, np.random.default_rng(0)), 50, 5000)
    assert len(asked) == len(set(asked)) == 1100


@pytest.mark.parametrize("make", [RandomSearch, Anneal, Evolve])
def test_memory_grows_with_trials_not_with_the_space(make) -> None:
    tracemalloc.start()
    try:
        assert len(run(make(TIED, np.random.default_rng(0)), 1, 100)) == 100
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_failure_costs_more_than_any_time_and_a_time_of_zero_is_no_error() -> None:
    config = SMALL.first
    assert cost(failed(config)) == float("inf")
    assert cost(timed(config)) == pytest.approx(np.log(timed(config).seconds))
    assert -float("inf") < cost(Trial(config, Timing((0.0,)))) < cost(timed(config))


def test_a_turned_config_differs_by_what_was_turned() -> None:
    neighborhood = Neighborhood(SMALL, np.random.default_rng(0))
    start = dict(SMALL.first)
    for _ in range(50):
        turned = neighborhood.mutate(start)
        assert sum(turned[name] != start[name] for name in start) == 1


def test_moves_reach_every_variant_and_keep_what_variants_share() -> None:
    neighborhood = Neighborhood(VARIED, np.random.default_rng(0))
    start = {"variant": "library", "threads": 2}
    seen = [neighborhood.mutate(start) for _ in range(100)]
    assert {settings["variant"] for settings in seen} == {"library", "blocked", "packed"}
    assert all(settings["threads"] == 2 for settings in seen if settings["variant"] != "library")


def test_children_of_two_variants_belong_to_one() -> None:
    neighborhood = Neighborhood(VARIED, np.random.default_rng(0))
    one, other = VARIED[3], VARIED[len(VARIED) - 1]
    assert {one["variant"], other["variant"]} == {"blocked", "packed"}
    for _ in range(50):
        child = neighborhood.crossover(one, other)
        assert child["variant"] == one["variant"]
        assert child["tile"] in (8, 16, 32)
        assert "depth" not in child


PROPOSE = """
import json, numpy as np
from tunewright.strategies import anneal, evolve, learned, random, tpe
from tunewright.testing.strategy_kit import LARGE, VARIED, half_failed, run
makes = [random.RandomSearch, anneal.Anneal, evolve.Evolve, tpe.Tpe, learned.Learned]
print(json.dumps([[dict(c) for c in run(make(space, np.random.default_rng(3)), 2, 24, half_failed)]
                  for make in makes for space in (LARGE, VARIED)]))
"""


@pytest.mark.slow
def test_proposals_do_not_depend_on_how_a_process_hashes_text() -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("lightgbm")
    said = [
        subprocess.run(
            [sys.executable, "-c", PROPOSE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("1", "2")
    ]
    assert json.loads(said[0].stdout) == json.loads(said[1].stdout)
    assert not said[0].stderr
