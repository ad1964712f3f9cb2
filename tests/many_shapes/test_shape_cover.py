from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.model.trial import Timing, Trial
from tunewright.report.cover_plot import draw
from tunewright.shapes.cover import cover, curve, probability_within
from tunewright.shapes.table import ShapeTable, errors_of
from tunewright.spaces.config import Config


def random_table(seed: int) -> ShapeTable:
    rng = np.random.default_rng(seed)
    times = np.exp(rng.normal(0, 0.2, (9, 7)))
    return ShapeTable.of(({"M": m + 1}, Config(x=x), float(times[m, x])) for m in range(9) for x in range(7))


def smallest(table: ShapeTable, within: float) -> int:
    """By trying all sets."""
    near = table.regret <= within
    sizes = range(1, len(table.configs) + 1)
    return next(n for n in sizes for some in combinations(range(len(table.configs)), n) if near[:, some].any(1).all())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("within", [0.0, 0.1, 0.3])
def test_a_cover_is_the_smallest_and_keeps_its_promise(seed, within) -> None:
    table = random_table(seed)
    found = cover(table, within)
    assert found.is_smallest
    assert len(found.configs) == smallest(table, within)
    assert found.regret.max() <= within
    assert set(found.serves) <= set(found.configs)


def test_a_cover_says_what_each_config_is_for(small) -> None:
    found = cover(small, 0.05)
    assert [small.configs[c]["x"] for c in found.configs] == [1, 2]
    assert found.shapes_of(found.configs[0]) == [2, 3]
    assert found.describe(found.configs[0]) == "2 shapes: M 64 to 500"
    assert found.describe(found.configs[1]) == "2 shapes: M 4 to 8"
    assert len(cover(small, 0.6).configs) == 1


def test_a_config_serves_no_shape_on_which_it_was_not_tried(small) -> None:
    seconds = small.seconds.copy()
    seconds[0, 2], seconds[1, 2] = np.nan, np.inf
    found = cover(ShapeTable(small.names, small.shapes, small.configs, seconds, small.weights), 0.6)
    assert 2 not in found.serves[:2]


def test_shapes_without_a_trial_are_left_out_and_none_at_all_is_an_error(small) -> None:
    assert cover(small.only([0, 1]), 0.05).table.shapes == ((4,), (8,))
    with pytest.raises(SettingsError, match="tune the kernel first"):
        cover(small.only([]), 0.05)
    with pytest.raises(SettingsError, match="5%"):
        cover(small, -0.1)


def test_the_curve_falls_to_nothing(small) -> None:
    points = curve(small)
    assert [point.configs for point in points] == [1, 2, 3]
    assert points[0].mean == pytest.approx((0.04 + 0.02 + 0.03 + 0.5) / 4)
    assert points[0].worst == pytest.approx(0.5)
    assert points[2].mean == points[2].worst == 0
    weighted = ShapeTable(small.names, small.shapes, small.configs, small.seconds, np.array([0.01, 0.01, 0.01, 9.0]))
    assert curve(weighted, 1)[0].worst == pytest.approx(1.0), "the heavy shape decides"


def test_a_noisy_shape_needs_a_config_that_is_surely_near_or_is_called_unsure() -> None:
    names, shapes, configs = ("M",), ((4,), (8,)), (Config(x=0), Config(x=1))
    seconds = np.array([[1.0, 1.04], [1.0, 1.04]])
    still = ShapeTable(names, shapes, configs, seconds, np.ones(2))
    assert cover(still, 0.05).sure == (1.0, 1.0), "nothing is known of errors"
    quiet = replace(still, errors=np.full((2, 2), 0.001))
    assert np.allclose(probability_within(quiet, 0.05), 1.0)
    noisy = replace(still, errors=np.array([[0.001, 0.001], [0.04, 0.04]]))
    sure = probability_within(noisy, 0.05)
    assert sure[1, 0] > 0.8 > sure[1, 1] > 0.3
    found = cover(noisy, 0.05, confidence=0.99)
    assert found.configs == (0,)
    assert [noisy.shapes[i] for i in found.unsure] == [(8,)]
    assert cover(noisy, 0.05, confidence=0.5).unsure == []


def test_errors_of_trials_come_from_their_samples() -> None:
    rng = np.random.default_rng(0)
    trials = [Trial(Config(x=0), Timing(tuple(np.exp(rng.normal(0, 0.1, 25)).tolist()), "cpu"))]
    assert errors_of(trials)[Config(x=0)] == pytest.approx(1.25 * 0.1 / 5, rel=0.4)
    assert errors_of([Trial(Config(x=0), Timing((1.0, 1.1), "cpu"))]) == {}, "too few to say"


@pytest.mark.slow
def test_the_curve_is_drawn(modeled, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    draw(tmp_path / "curve.svg", curve(modeled), "configs for $shapes$", 3)
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    with pytest.raises(SettingsError, match=r"\.png or \.svg"):
        draw(tmp_path / "curve.txt", curve(modeled), "", 3)
