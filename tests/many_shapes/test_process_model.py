from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tunewright.shapes.covariance import STEPS, Covariance, same_level
from tunewright.shapes.draws import BalancedDraws
from tunewright.shapes.features import Features, knob_columns, shape_columns
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.local_mean import PRIOR, LocalMean
from tunewright.shapes.process_model import MAX_TRIALS, ProcessModel
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.strategies.rprop import minimize

TILES = [[("TM",)], [("TN",)]]


def process(table: ShapeTable) -> ProcessModel:
    return ProcessModel(table, Features(len(table.names), table.configs), TILES)


def some(table: ShapeTable, each: int, seed: int = 0) -> ShapeTable:
    """A few random trials of each shape."""
    rng, tried = np.random.default_rng(seed), np.zeros(table.seconds.shape, dtype=bool)
    for row in tried:
        row[rng.choice(len(row), each, replace=False)] = True
    return replace(table, seconds=np.where(tried, table.seconds, np.nan))


def alike() -> ShapeTable:
    """A kernel whose configs differ by smooth effects that no tile explains, with unknown levels of the shapes."""
    rng = np.random.default_rng(3)
    configs = [Config(A=a, B=b, C=c) for a, b, c in product((1, 2, 4, 8, 16), (16, 32, 64, 128), ("x", "y"))]
    rows = []
    for m in (4, 8, 16, 32, 64, 128, 256, 512, 20, 50, 90, 200):
        level = float(rng.normal(0, 3))
        for config in configs:
            place = np.log2(config["A"]) / 4 - np.log2(m) / 9
            effect = 2 * place**2 + 0.3 * (np.log2(config["B"]) - 5.5) ** 2 / 4 + (0.2 if config["C"] == "x" else 0)
            rows.append(({"M": m}, config, float(np.exp(level + effect))))
    return ShapeTable.of(rows)


def test_what_is_alike_takes_alike_times() -> None:
    table = alike()
    known = some(table, 4)
    model = ProcessModel(known, Features(1, known.configs), [[]])
    lost = [table.regret[i, int(model.predict(shape).argmin())] for i, shape in enumerate(table.shapes)]
    best_for_all = table.regret.mean(axis=0).min()
    assert np.mean(lost) < 0.5 * best_for_all
    assert model.error < 0.05


def test_levels_of_shapes_do_not_matter() -> None:
    table = some(alike(), 4)
    scaled = replace(table, seconds=table.seconds * np.exp(np.arange(len(table.shapes)))[:, None])
    features = Features(1, table.configs)
    one, other = ProcessModel(table, features, [[]]), ProcessModel(scaled, features, [[]])
    assert other.predict((77,)) == pytest.approx(one.predict((77,)), abs=1e-6)
    assert other.error == pytest.approx(one.error, rel=1e-4)


def test_the_gradient_of_the_fit_is_right() -> None:
    rng = np.random.default_rng(1)
    points, shapes, values = rng.random((30, 5)), rng.integers(0, 6, 30), rng.standard_normal(30)
    covariance = Covariance(2, 5)
    squares = ((points[:, None] - points[None]) ** 2).reshape(900, -1)
    theta = covariance.theta + rng.normal(0, 0.5, len(covariance.theta))

    def cost(at: np.ndarray) -> tuple[float, np.ndarray]:
        return covariance._cost(at, squares, same_level(shapes, shapes), values)

    steps = 1e-5 * np.eye(len(theta))
    found = [(cost(theta + step)[0] - cost(theta - step)[0]) / 2e-5 for step in steps]
    assert cost(theta)[1] == pytest.approx(np.array(found), rel=1e-4, abs=1e-5)
    before = cost(covariance.theta)[0]
    covariance.fit(points, shapes, values)
    assert cost(covariance.theta)[0] < before, f"{STEPS} steps improve the fit"


def test_variances_are_honest(modeled) -> None:
    """Errors of trials that were not made are about as large as the process says."""
    known, ratios = some(modeled, 6), []
    model = process(known)
    for shape in range(len(modeled.shapes)):
        logs, variance = model.foresee(shape)
        left = np.isnan(known.seconds[shape])
        ratios += list((np.log(modeled.seconds[shape]) - logs)[left] ** 2 / variance[left])
    assert 0.2 < np.mean(ratios) < 3


def test_a_shape_with_one_trial_has_its_level(modeled) -> None:
    seconds = modeled.seconds.copy()
    seconds[5, 1:] = np.nan
    logs, variance = process(replace(modeled, seconds=seconds)).foresee(5)
    assert np.abs(logs - np.log(modeled.seconds[5])).mean() < 0.3
    assert variance[0] == variance.min(), "what was tried is known best"


def test_an_odd_region_is_less_certain(modeled) -> None:
    chance = np.exp(np.random.default_rng(4).normal(0, 0.3, modeled.seconds.shape))
    many = np.array([m >= 64 for m, _ in modeled.shapes])
    odd = replace(modeled, seconds=np.where(many[:, None], chance, 1) * modeled.seconds)
    model = process(some(odd, 8))
    shares = [model._surprise.at(np.array(shape, float)) for shape in ((64.0, 96.0), (3.0, 96.0))]
    assert shares[0] > 2 * shares[1]


def test_the_kind_of_model_that_suits_a_kernel_counts_most() -> None:
    shares = JointModel(some(alike(), 4)).shares
    assert shares.argmax() == 2
    assert shares.sum() == pytest.approx(1)


def test_many_trials_are_sampled_and_failures_and_constants_are_no_trouble(modeled) -> None:
    model = process(modeled)
    assert len(model._shapes) <= MAX_TRIALS
    failing = modeled.seconds.copy()
    failing[:, 3], failing[4, :] = np.inf, np.inf
    assert np.isfinite(process(replace(modeled, seconds=failing)).predict((8, 48))).all()
    equal = process(replace(modeled, seconds=np.ones_like(modeled.seconds)))
    assert np.abs(equal.predict((8, 48))).max() < 1e-3


def test_of_thousands_of_shapes_some_are_looked_at() -> None:
    rng, configs = np.random.default_rng(0), [Config(T=t) for t in (1, 2, 4, 8)]
    rows = [
        ({"M": m}, c, m * (1 + 0.1 * c["T"]) * float(np.exp(rng.normal(0, 0.01))))
        for m in range(1, 1502)
        for c in configs[m % 2 :]
    ]
    table = ShapeTable.of(rows)
    model = ProcessModel(table, Features(1, table.configs), [[("T",)]])
    assert len(model._shapes) <= MAX_TRIALS
    left_out = next(i for i in range(1500) if i not in model._shapes)
    for shape in (left_out, int(model._shapes[0])):
        works = table.works[shape]
        logs, variance = model.foresee(shape)
        assert logs[works] == pytest.approx(np.log(table.seconds[shape, works]), abs=0.1)
        assert (variance > 0).all()


def test_columns_take_any_knob() -> None:
    configs = [Config(order=order, fast=fast, tile=tile, off=off, one=7) for order, fast, tile, off in CASES]
    columns = knob_columns(configs)
    assert columns.shape == (len(configs), 2 + 1 + 1 + 1)
    assert columns.min() == 0
    assert columns.max() == 1
    places = [sorted(set(column)) for column in columns.T.tolist()]
    assert pytest.approx([0, 1 / 3, 2 / 3, 1]) in places, "powers of two are at equal distances"
    assert shape_columns(np.array([[96.0, 7.0]]))[0] == pytest.approx([np.log2(96) / 4, np.log2(7) / 4, 1, 0])
    assert knob_columns([Config(x=1), Config(x=1)]).shape == (2, 0)


CASES = list(product(("ij", "ji"), (False, True), (8, 16, 32, 64), (-1, 0, 5)))


def test_a_local_mean_is_that_of_all_far_away() -> None:
    sizes, values = np.array([[4.0], [4.0], [4.0], [1024.0]]), np.array([1.0, 1.0, 1.0, 9.0])
    mean = LocalMean(sizes, values, np.ones(4))
    assert mean.overall == 3
    assert mean.at(np.array([1e12])) == pytest.approx(3)
    assert mean.at(np.array([4.0])) == pytest.approx((PRIOR * 3 + 3) / (PRIOR + 3), rel=1e-3)
    expected = LocalMean(sizes, values, np.ones(4), 1.0)
    assert expected.overall == pytest.approx((PRIOR + 12) / (PRIOR + 4))


def test_draws_are_balanced_and_different() -> None:
    configs = [Config(a=a, b=b, c=c) for a, b, c in product(range(4), range(6), range(2))]
    levels = Features(1, configs).levels
    draws = BalancedDraws(levels, np.random.default_rng(0))
    found = [draws.next(2) for _ in range(12)]
    assert all(len(set(pair)) == 2 for pair in found)
    drawn = [config for pair in found for config in pair]
    assert len(set(drawn)) == 24, "none comes twice before all came once"
    frequent = levels[drawn].sum(axis=0)
    at_random = [levels[np.random.default_rng(i).choice(48, 24, replace=False)].sum(axis=0) for i in range(50)]
    expected = levels.mean(axis=0) * 24
    assert np.abs(frequent - expected).mean() < 0.6 * np.mean([np.abs(one - expected).mean() for one in at_random])
    rest = [config for _ in range(12) for config in draws.next(2)]
    assert sorted([*drawn, *rest]) == list(range(48))
    assert all(draws.next(1, without=7) != [7] for _ in range(60))


def test_a_minimum_is_found_within_bounds() -> None:
    def cost(at: np.ndarray) -> tuple[float, np.ndarray]:
        off = at - np.array([1.0, -5.0])
        return float(off @ off), 2 * off

    found = minimize(cost, np.zeros(2), (np.full(2, -2.0), np.full(2, 2.0)), 60)
    assert found == pytest.approx([1.0, -2.0], abs=0.05)
