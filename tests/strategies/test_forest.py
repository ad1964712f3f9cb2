"""Randomized trees: they learn steps and interactions, say how sure they are, and repeat with their seed."""

import numpy as np
import pytest

from tunewright.strategies.forest import MIN_SPREAD, Forest


def _made(seed=0, count=200):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 8, (count, 6)).astype(np.float32) / 7
    return points, np.where(points[:, 0] > 0.5, 1.0, 0.0) + np.where(points[:, 1] > 0.3, points[:, 2], 0.0)


def _fitted(points, values, seed=1, **options):
    forest = Forest(np.random.default_rng(seed), **options)
    forest.fit(points, values)
    return forest


def test_steps_and_interactions_are_learned() -> None:
    forest = _fitted(*_made())
    points, values = _made(seed=2, count=500)
    predicted, _ = forest.predict(points)
    assert np.corrcoef(predicted, values)[0, 1] > 0.9


def test_what_was_seen_is_predicted_almost_exactly() -> None:
    points, values = _made()
    predicted, _ = _fitted(points, values).predict(points)
    assert np.abs(predicted - values).mean() < 0.1 * values.std()


def test_it_is_less_sure_of_what_it_has_not_seen() -> None:
    points, values = _made(count=24)
    forest = _fitted(points, values)
    far, _ = _made(seed=3, count=500)
    assert forest.predict(far)[1].mean() > 1.5 * forest.predict(points)[1].mean()


@pytest.mark.parametrize("values", [[2.0], [2.0, 2.0, 2.0]])
def test_one_value_is_predicted_everywhere(values) -> None:
    points = np.linspace(0, 1, len(values), dtype=np.float32)[:, None]
    mean, spread = _fitted(points, np.array(values)).predict(np.array([[0.1], [0.9]], np.float32))
    assert mean.tolist() == [2.0, 2.0]
    assert spread.tolist() == [MIN_SPREAD, MIN_SPREAD]


def test_the_same_seed_gives_the_same_trees_and_a_second_fit_forgets_the_first() -> None:
    points, values = _made()
    forest, again = _fitted(points, -values), _fitted(points, -values)
    for one in (forest, again):
        one.fit(points, values)
    assert np.array_equal(forest.predict(points)[0], again.predict(points)[0])
    assert np.corrcoef(forest.predict(points)[0], values)[0, 1] > 0.9


def test_equal_points_with_different_values_get_their_mean() -> None:
    points = np.zeros((4, 3), np.float32)
    mean, _ = _fitted(points, np.array([1.0, 2.0, 3.0, 6.0])).predict(points[:1])
    assert mean.tolist() == [3.0]
