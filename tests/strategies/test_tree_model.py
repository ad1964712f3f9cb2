"""Trees beside the process: weights follow the errors, and a search with both proposes each config once."""

import numpy as np
import pytest

from tunewright import Config, Knob, Space
from tunewright.model.trial import Timing, Trial
from tunewright.strategies.bayes import LEAST_AFTER, Bayes, BayesOptions
from tunewright.strategies.tree_model import FIRST_USE, FULL_USE, MAX_PREDICTED, Prediction, TreeModel

SPACE = Space(Knob("a", [1, 2, 4, 8, 16]), Knob("b", [1, 2, 3, 4, 5, 6]), Knob("c", ["x", "y", "z"]))
SMOOTH = Space(Knob("a", range(1, 13)), Knob("b", range(1, 13)))


def _seconds(config: Config) -> float:
    return 1.0 + abs(config["b"] - 4) + (2.0 if config["a"] < 8 else 0.0) + (config["c"] != "y")


def _search(seed: int, trials: int, options: BayesOptions | None = None) -> list[Config]:
    search, asked = Bayes(SPACE, np.random.default_rng(seed), options), []
    for _ in range(trials):
        (config,) = search.ask(1)
        asked.append(config)
        search.tell([Trial(config, Timing((_seconds(config),)))])
    return asked


def _fitted(trials: int) -> TreeModel:
    model, rng = TreeModel(3), np.random.default_rng(1)
    model.learn(rng.random((trials, 3)), rng.random(trials))
    return model


def test_trees_count_only_when_there_are_enough_trials() -> None:
    scores, points = np.zeros(5), np.random.default_rng(2).random((5, 3))
    few, some = _fitted(FIRST_USE), _fitted((FIRST_USE + FULL_USE) // 2)
    assert (few.weight, some.weight) == (few.weight_of_mean, some.weight_of_mean) == (0.0, 0.25)
    assert few.combine(scores, points, 0.0) is scores
    assert not np.array_equal(some.combine(scores, points, 0.0), scores)


def test_trees_look_at_the_first_columns_only() -> None:
    model, rng = TreeModel(2), np.random.default_rng(4)
    points, values = rng.random((60, 4)), rng.random(60)
    model.learn(points, values)
    changed = points.copy()
    changed[:, 2:] = 1 - changed[:, 2:]
    assert np.array_equal(model.predict(points), model.predict(changed))


def test_of_many_candidates_the_trees_predict_the_best_and_some_others() -> None:
    model, rng = _fitted(FULL_USE), np.random.default_rng(3)
    scores = rng.random(4 * MAX_PREDICTED)
    changed = np.flatnonzero(model.combine(scores, rng.random((len(scores), 3)), 0.0) != scores + np.log1p(-0.5))
    assert len(changed) <= MAX_PREDICTED
    assert int(scores.argmax()) in changed


def test_whoever_predicted_better_counts_more() -> None:
    model = _fitted(FULL_USE)
    right, wrong = Prediction(0.1, 0.3), Prediction(1.0, 0.3)
    assert model.weight == model.weight_of_mean == 0.5
    for _ in range(10):
        model.compare(wrong, right, 0.0, 0.1)
    assert min(model.weight, model.weight_of_mean) > 0.6
    for _ in range(40):
        model.compare(right, wrong, 0.0, 0.1)
    assert max(model.weight, model.weight_of_mean) < 0.1


def test_of_two_that_are_right_the_one_that_is_surer_decides_about_improvement() -> None:
    model = _fitted(FULL_USE)
    for _ in range(20):
        model.compare(Prediction(0.01, 0.02), Prediction(0.01, 0.5), 0.0, 0.01)
    assert model.weight < 0.001
    assert model.weight_of_mean == pytest.approx(0.5)
    scores = np.full(5, -30.0)
    assert model.combine(scores, np.random.default_rng(2).random((5, 3)), 0.0) is scores


def test_who_is_sure_and_wrong_counts_less_than_who_is_vague() -> None:
    model = _fitted(FULL_USE)
    for _ in range(20):
        model.compare(Prediction(1.0, 0.02), Prediction(1.0, 0.5), 0.0, 0.01)
    assert model.weight > 0.9


def test_one_surprise_does_not_decide_alone() -> None:
    model = _fitted(FULL_USE)
    for _ in range(20):
        model.compare(Prediction(0.0, 0.05), Prediction(0.0, 0.5), 0.0, 0.01)
    model.compare(Prediction(5.0, 0.05), Prediction(0.0, 0.5), 0.0, 0.01)
    assert model.weight < 0.1


def test_a_search_with_trees_finds_the_best_and_repeats_nothing() -> None:
    asked = _search(seed=3, trials=SPACE.size)
    assert len(set(asked)) == SPACE.size
    assert min(map(_seconds, asked[:40])) == 1.0


def test_the_same_seed_asks_the_same() -> None:
    assert _search(seed=5, trials=60) == _search(seed=5, trials=60)


def test_trees_change_nothing_until_they_count() -> None:
    with_trees, without = _search(seed=6, trials=64), _search(seed=6, trials=64, options=BayesOptions(trees=False))
    assert with_trees[:FIRST_USE] == without[:FIRST_USE]
    assert with_trees != without


def _smooth_seconds(config: Config) -> float:
    return 1.0 + 0.02 * (config["a"] - 6) ** 2 + 0.02 * (config["b"] - 3) ** 2


def _told(later: str, noise: float, trials: int = 72, space: Space = SMOOTH, *, trees: bool = True) -> Bayes:
    """A search that was told trials from all over the space."""
    search = Bayes(space, np.random.default_rng(8), BayesOptions(later=later, trees=trees))
    draws = np.random.default_rng(9)
    for config in space.sample(draws, trials):
        seconds = _smooth_seconds(config) * float(np.exp(noise * draws.standard_normal()))
        search.tell([Trial(config, Timing((seconds,)))])
    return search


def test_configs_are_proposed_for_their_predicted_time_only_where_times_are_noisy() -> None:
    assert _told("m", noise=0.0).ask(6) == _told("g", noise=0.0).ask(6)
    assert _told("m", noise=0.2).ask(6) != _told("g", noise=0.2).ask(6)


def test_configs_are_proposed_for_their_predicted_time_only_after_enough_trials() -> None:
    few = LEAST_AFTER - 1
    assert _told("m", noise=0.2, trials=few).ask(6) == _told("g", noise=0.2, trials=few).ask(6)


def _slow_after_a_lucky_time(later: str, lucky: Config) -> int:
    """How many of five proposals are slow after a slow config was lucky; the noise is fitted when one is proposed."""
    search, proposed = _told(later, noise=0.2), list[Config]()
    search.tell([Trial(lucky, Timing((0.5,)))])
    for _ in range(6):
        proposed += search.ask(1)
        search.tell([Trial(proposed[-1], Timing((_smooth_seconds(proposed[-1]),)))])
    return sum(_smooth_seconds(config) > 1.3 for config in proposed[1:])


def test_of_noisy_times_the_config_that_the_models_expect_to_be_fastest_is_proposed() -> None:
    lucky = [Config(a=a, b=12) for a in (9, 10, 11, 12)]
    assert max(_slow_after_a_lucky_time("m", config) for config in lucky) <= 1
    assert min(_slow_after_a_lucky_time("g", config) for config in lucky) > 1


@pytest.mark.parametrize("trees", [True, False])
def test_noisy_searches_of_large_spaces_repeat_nothing(trees: bool) -> None:
    large = Space(*(Knob(name, range(1, 9)) for name in "abdefg"))
    search = _told("m", noise=0.5, space=large, trees=trees)
    asked = search.ask(8)
    assert len(set(asked)) == len(asked)
