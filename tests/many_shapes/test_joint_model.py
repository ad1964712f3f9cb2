from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.shapes.additive_model import AdditiveModel, center
from tunewright.shapes.equations import ByFeatures, ByTrials
from tunewright.shapes.features import MAX_LEVELS, PER_TILE, Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.selection import _uncertainty, expected_gains, shapes_to_tune, trials_to_make
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config


def regret_of_untuned(table: ShapeTable, tuned: list[int]) -> np.ndarray:
    model = JointModel(table.only(tuned))
    others = [i for i in range(len(table.shapes)) if i not in tuned]
    return np.array([table.regret[i, model.best(table.shapes[i])] for i in others])


def regret_of_nearest(table: ShapeTable, tuned: list[int]) -> np.ndarray:
    logs = np.log2(table.sizes)
    others = [i for i in range(len(table.shapes)) if i not in tuned]
    near = [min(tuned, key=lambda j: float(np.abs(logs[i] - logs[j]).sum())) for i in others]
    return np.array([table.regret[i, table.regret[j].argmin()] for i, j in zip(others, near, strict=True)])


def test_untuned_shapes_get_better_configs_than_their_neighbors_have(modeled) -> None:
    tuned = shapes_to_tune(modeled.only([]), 6)
    by_model, by_neighbor = regret_of_untuned(modeled, tuned), regret_of_nearest(modeled, tuned)
    assert by_model.mean() < 0.12 < by_neighbor.mean()


def test_which_knob_divides_which_size_is_found_from_trials(modeled) -> None:
    tiles = JointModel(modeled).tiles
    assert {("M", ("TM",)), ("N", ("TN",))} <= set(tiles)


def test_some_trials_of_each_shape_are_enough(modeled) -> None:
    rng = np.random.default_rng(1)
    seconds = np.where(rng.random(modeled.seconds.shape) < 0.4, modeled.seconds, np.nan)
    partial = ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds, modeled.weights)
    model = JointModel(partial)
    found = [modeled.regret[i, model.best(shape)] for i, shape in enumerate(modeled.shapes)]
    assert np.mean(found) < 0.1


def test_failures_say_nothing_about_time(modeled) -> None:
    seconds = modeled.seconds.copy()
    seconds[:, 3] = np.inf
    model = JointModel(ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds, modeled.weights))
    assert np.isfinite(model.predict((8, 48))).all()


def test_predictions_are_less_certain_far_from_what_was_tuned(modeled) -> None:
    seconds = modeled.seconds.copy()
    few = [i for i, (m, _) in enumerate(modeled.shapes) if m < 17]
    seconds[few, 2:] = np.nan
    model = JointModel(replace(modeled, seconds=seconds))
    (_, far), (_, near) = (model.foresee(modeled.shapes.index(shape)) for shape in ((1, 48), (64, 48)))
    assert far.mean() > 2 * near.mean()


def test_a_model_needs_times() -> None:
    table = ShapeTable.of([({"M": 1}, Config(x=1), float("inf")), ({"M": 1}, Config(x=2), 1.0)])
    with pytest.raises(SettingsError, match="tune some shapes"):
        JointModel(table)


def test_shapes_to_tune_are_new_and_follow_the_weights(modeled) -> None:
    chosen = shapes_to_tune(modeled.only([0, 1]), 5)
    assert len(set(chosen) - {0, 1}) == 5
    assert shapes_to_tune(modeled, 3) == []
    small = np.array([1000.0 if m == 1 else 1e-3 for m, _ in modeled.shapes])
    weighted = ShapeTable(modeled.names, modeled.shapes, modeled.configs, modeled.seconds, small)
    assert [modeled.shapes[i][0] for i in shapes_to_tune(weighted.only([]), 2)] == [1, 1]
    assert [modeled.shapes[i][0] for i in shapes_to_tune(modeled.only([]), 2)] != [1, 1]


def test_shapes_to_tune_are_not_all_powers_of_two() -> None:
    """They lie farther apart than others here, but what tiles leave over can be learned only from others."""
    powers = [(1, 128, 1024), (4, 16, 2048), (8, 64, 64), (8, 256, 16), (16, 4, 512), (16, 32, 128)]
    powers += [(32, 8, 256), (64, 1, 128), (64, 16, 32), (128, 2, 64), (256, 32, 8), (512, 4, 16)]
    others = [(1, 100, 1500), (3, 20, 2000), (6, 50, 50), (5, 200, 12), (12, 3, 300), (10, 30, 100)]
    others += [(24, 7, 200), (50, 1, 97), (60, 12, 23), (100, 2, 70), (200, 40, 5), (300, 5, 31)]
    knobs = product((4, 8, 16), (1, 2, 4, 8), (1, 2, 4), (0, 1), (0, 1))
    configs = tuple(Config(VW=v, CB=c, AT=at, ORDER=order, TAIL=tail) for v, c, at, order, tail in knobs)
    table = ShapeTable(("M", "N", "K"), (*powers, *others), configs, np.full((24, len(configs)), np.nan), np.ones(24))
    assert 2 <= sum(shape >= len(powers) for shape in shapes_to_tune(table, 8)) <= 6


def test_trials_go_where_most_is_expected(modeled) -> None:
    rng = np.random.default_rng(2)
    tried = rng.random(modeled.seconds.shape) < 0.3
    tried[0] = False
    tried[1] = True
    known = replace(modeled, seconds=np.where(tried, modeled.seconds, np.nan))
    model = JointModel(known)
    trials = trials_to_make(known, 5, model)
    assert trials[0] == (0, model.best(modeled.shapes[0])), "a shape without any trial comes first"
    assert 1 not in [shape for shape, _ in trials], "all is known of it"
    assert not any(tried[shape, config] for shape, config in trials)
    gains = [expected_gains(known, model, shape).max() for shape, _ in trials[1:]]
    assert gains == sorted(gains, reverse=True)


def test_joint_trials_find_good_configs_of_all_shapes_in_few(modeled) -> None:
    rng = np.random.default_rng(3)
    seconds = np.full_like(modeled.seconds, np.nan)
    for row, times in zip(seconds, modeled.seconds, strict=True):
        some = rng.choice(len(times), 2, replace=False)
        row[some] = times[some]
    for _ in range(3):
        known = ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds.copy(), modeled.weights)
        model = JointModel(known)
        for shape, config in trials_to_make(known, len(modeled.shapes), model):
            seconds[shape, config] = modeled.seconds[shape, config]
    best = np.where(np.isnan(seconds), np.inf, seconds).argmin(axis=1)
    regret = [modeled.regret[i, config] for i, config in enumerate(best)]
    assert np.isfinite(seconds).sum() == 5 * len(modeled.shapes)
    assert np.mean(regret) < 0.05


def odd(table: ShapeTable) -> ShapeTable:
    """The same, but on shapes with many rows configs differ by chance."""
    chance = np.exp(np.random.default_rng(4).normal(0, 0.3, table.seconds.shape))
    many = np.array([m >= 64 for m, _ in table.shapes])
    return replace(table, seconds=np.where(many[:, None], chance, 1) * table.seconds)


def partial(table: ShapeTable, share: float) -> ShapeTable:
    """A random share of the trials."""
    tried = np.random.default_rng(5).random(table.seconds.shape) < share
    return replace(table, seconds=np.where(tried, table.seconds, np.nan))


@pytest.mark.parametrize(("share", "ratio"), [(0.15, 2), (0.5, 4), (1.0, 4)])
def test_a_model_knows_where_it_is_wrong(modeled, share, ratio) -> None:
    table = partial(odd(modeled), share)
    model = AdditiveModel(table, Features(2, table.configs))
    assert model.error_near((64, 96)) > ratio * model.error_near((3, 96)), "it is right about few rows"
    assert model.error_near((3, 96)) < model.error < model.error_near((64, 96))
    assert model.error_near((10**6, 10**6)) == pytest.approx(model.error), "nothing was tried near it"


def test_trials_go_where_a_model_is_wrong(modeled) -> None:
    table = partial(odd(modeled), 0.5)
    trials = trials_to_make(table, 16, JointModel(table))
    assert sum(modeled.shapes[shape][0] >= 64 for shape, _ in trials) >= 6, "10 of 35 shapes are of this kind"


def test_features_take_any_knob() -> None:
    configs = [Config(order="ij", fast=True, tile=t) for t in range(1, 41)] + [Config(order="ji", fast=False, tile=7)]
    features = Features(2, configs)
    assert {group.knobs for group in features.groups} == {("tile",)}
    rows = features.of(np.array([5.0, 9.0]))
    assert rows.shape == (41, features.count)
    assert np.isfinite(rows).all()
    assert features.base <= (MAX_LEVELS + 4) * 7 + 4 * MAX_LEVELS + 4
    assert features.columns(1).stop == features.count
    assert features.columns(1).start - features.columns(0).start == PER_TILE


def test_what_is_left_over_and_done_one_by_one_is_foreseen() -> None:
    """Vectors of 4 to 32 elements, and a loop over the rest: which is the best depends on what is left over."""
    configs = tuple(Config(vector=1 << i, unroll=unroll) for i in range(2, 6) for unroll in (1, 2))
    lost = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        sizes = zip(rng.permutation(np.arange(20, 150))[:40].tolist(), rng.integers(1, 50, 40).tolist(), strict=True)
        shapes = tuple(sizes)
        steps = np.array([[n // c["vector"] + n % c["vector"] for c in configs] for n, _ in shapes], dtype=np.float64)
        seconds = steps * [1 + 0.1 / c["unroll"] for c in configs] * np.array(shapes)[:, 1:]
        table = ShapeTable(("N", "R"), shapes, configs, seconds, np.ones(len(shapes)))
        lost.append(regret_of_untuned(table, list(range(16))).mean())
    assert np.mean(lost) < 0.02


def test_what_the_features_leave_over_is_carried_to_shapes_nearby(modeled) -> None:
    """One config is much faster on large M for a reason that no feature has: only its residuals can say so."""
    odd = next(
        i for i, config in enumerate(modeled.configs) if config["TM"] == 4 and config["TN"] == 16 and config["PACK"]
    )
    seconds = modeled.seconds.copy()
    seconds[[i for i, (m, _) in enumerate(modeled.shapes) if m >= 17], odd] *= 0.4
    table = ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds, modeled.weights)
    model = JointModel(table.only([i for i, (m, _) in enumerate(table.shapes) if m != 64]))
    assert model.best((64, 96)) == odd
    assert model.best((3, 96)) != odd


def test_configs_that_stand_for_all_do_not_depend_on_how_knobs_are_listed() -> None:
    """Every eighth config has the same innermost knobs, so configs at equal distances would all look alike."""
    places = [(a, b, c) for a in range(1, 12) for b in (1, 2, 4, 8) for c in (0, 1)]
    configs = tuple(Config(a=a, b=b, c=c) for a, b, c in places)
    shapes = tuple((size,) for size in (4, 9, 30, 100, 300, 1000))
    table = ShapeTable(("N",), shapes, configs, np.full((6, len(configs)), np.nan), np.ones(6))
    rows = _uncertainty(table, Features(1, configs)).rows(0)
    assert (rows.std(axis=0) > 0).mean() > 0.9


def test_features_of_some_configs_are_those_of_all(modeled) -> None:
    features, some = Features(2, modeled.configs), np.array([3, 1, 20])
    for sizes in (np.array([8.0, 48.0]), np.array([1.0, 1024.0])):
        expected = center(features.of(sizes))[some, : features.base]
        assert features.base_of(sizes, some) == pytest.approx(expected)
    assert features.base_of(np.array([8.0, 48.0]), some[:0]).shape == (0, features.base)


def test_each_column_belongs_to_a_part_and_each_tile_has_its_own(modeled) -> None:
    features = Features(2, modeled.configs)
    assert len(features.parts) == features.count
    assert set(features.parts) == set(range(features.parts.max() + 1))
    tiles = [set(features.parts[features.columns(group)]) for group in range(len(features.groups))]
    assert [len(parts) for parts in tiles] == [1] * len(tiles)
    assert len(set.union(*tiles)) == len(tiles)


def test_configs_that_are_tried_twice_change_no_prediction_much(modeled) -> None:
    """Errors agree within a shape: the penalty grows with the trials of a shape, as if there were no more of them."""
    tuned = shapes_to_tune(modeled.only([]), 8)
    twice = tuple(Config({**config, "IDLE": idle}) for config in modeled.configs for idle in (0, 1, 2, 3))
    table = ShapeTable(modeled.names, modeled.shapes, twice, np.repeat(modeled.seconds, 4, axis=1), modeled.weights)
    once, again = JointModel(modeled.only(tuned)), JointModel(table.only(tuned))
    for shape in modeled.shapes:
        assert once.predict(shape) == pytest.approx(again.predict(shape)[::4], abs=0.1)


def test_a_kernel_without_tiles_is_modeled() -> None:
    table = ShapeTable.of(
        ({"M": m}, Config(order=order), m * (1 + 0.5 * (order == ("a" if m < 30 else "b"))))
        for m in (1, 8, 16, 64, 200, 1000)
        for order in ("a", "b")
    )
    model = JointModel(table)
    assert model.tiles == []
    assert [table.configs[model.best((m,))]["order"] for m in (2, 500)] == ["b", "a"]


@pytest.mark.parametrize("counts", [[3] * 5, [4, 1, 6, 2, 9, 3, 5, 7, 8, 2, 6]])
def test_equations_by_trials_and_by_features_agree(counts) -> None:
    rng = np.random.default_rng(0)
    shapes = [(rng.normal(size=(count, 20)), rng.normal(size=count)) for count in counts]
    scales = np.exp(rng.normal(size=20))
    few, many = ByTrials(shapes, 8), ByFeatures(shapes, 8)
    assert few.count == many.count == sum(counts)
    assert few.moment == pytest.approx(many.moment)
    assert few.covariance(scales) == pytest.approx(many.covariance(scales), abs=1e-9)
    assert few.errors(scales) == pytest.approx(many.errors(scales))
