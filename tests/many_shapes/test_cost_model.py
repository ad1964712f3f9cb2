from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest

from tunewright.shapes import work as work_module
from tunewright.shapes.additive_model import AdditiveModel
from tunewright.shapes.cost_model import CostModels
from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import MIN_SHAPES, JointModel
from tunewright.shapes.prices import PRICES, PricedTrials, nonnegative_solution
from tunewright.shapes.table import ShapeTable
from tunewright.shapes.work import Work
from tunewright.spaces.config import Config

TWO_KNOBS = [Config(T=t, PACK=pack) for t, pack in product((1, 4, 16, 64), (0, 1))]


def table_of(seconds, sizes, names=("M", "N"), configs=TWO_KNOBS) -> ShapeTable:
    """A kernel whose times are a formula over sizes and config."""
    return ShapeTable.of(
        (dict(zip(names, size, strict=True)), config, seconds(*size, config)) for size in sizes for config in configs
    )


def blocked(m: int, n: int, config: Config) -> float:
    """Whole tiles of rows, and a copy of the input that makes them cheaper: sums of work, not of logarithms."""
    tiles = ceil(m / config["T"])
    return 50 + tiles * n * (config["T"] * (2 if config["PACK"] else 3) + 8) + (40 * n if config["PACK"] else 0)


def sizes_of(count: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    return [(int(m), int(n)) for m, n in zip(2 ** rng.uniform(0, 9, count), 2 ** rng.uniform(4, 9, count), strict=True)]


def off(predicted: np.ndarray, seconds: np.ndarray) -> float:
    """The root mean square of what predictions of a shape's times are wrong by, as logarithms."""
    return float(np.std(np.log(seconds) - predicted))


def test_work_is_what_tiles_make_of_a_size() -> None:
    work = Work(Features(1, [Config(T=4), Config(T=8)]), [[("T",)]])
    assert work.products.tolist() == [[0], [1], [2], [3], [4], [5]]
    assert work.of(np.array([10.0]), work.products).tolist() == [
        [1, 1],  # once
        [10, 10],  # for each element
        [12, 16],  # for each element of whole tiles
        [3, 2],  # for each tile
        [2, 1],  # for each full tile
        [2, 2],  # for what they leave over
    ]
    assert work.of(np.array([10.0]), work.products[2:3], np.array([1])).tolist() == [[16]]


def test_at_most_two_sizes_are_tiled_in_one_product() -> None:
    configs = [Config(A=a, B=b, C=c) for a, b, c in product((1, 2), (4, 8), (3, 6))]
    work = Work(Features(3, configs), [[("A",)], [("B",)], [("C",)]])
    tiled = (work.products >= work_module.UNTILED).sum(axis=1)
    assert set(tiled.tolist()) == {0, 1, 2}
    assert len(work.products) == work_module._count([1, 1, 1]) == 8 + 3 * 4 * 4 + 3 * 4 * 4 * 2
    assert len({tuple(row) for row in work.products.tolist()}) == len(work.products)


def test_tiles_are_left_out_where_products_would_be_too_many(monkeypatch) -> None:
    features, tiles = Features(1, [Config(T=4), Config(T=8)]), [[("T",)]]
    monkeypatch.setattr(work_module, "MAX_PRODUCTS", 5)
    assert Work(features, tiles).products.tolist() == [[0], [1]]
    monkeypatch.setattr(work_module, "MAX_PRODUCTS", 1)
    assert Work(features, tiles).products.tolist() == [[0]], "what is done once is always there"


@pytest.mark.parametrize("seed", range(20))
def test_solutions_without_negative_numbers_are_the_best_ones(seed) -> None:
    """Against all subsets: the best is the least-squares solution of one of them."""
    rng = np.random.default_rng(seed)
    rows, wanted = rng.normal(size=(30, 6)), rng.normal(size=30)
    found = nonnegative_solution(rows, wanted, np.zeros(6))
    best = np.inf
    for chosen in product((False, True), repeat=6):
        own = rows[:, chosen]
        solved = np.linalg.lstsq(own, wanted)[0]
        if (solved >= 0).all():
            best = min(best, float(((wanted - own @ solved) ** 2).sum()))
    assert (found >= 0).all()
    assert ((wanted - rows @ found) ** 2).sum() == pytest.approx(best, rel=1e-6)
    fewer = nonnegative_solution(rows[:, :5], wanted, np.zeros(5))
    again = nonnegative_solution(rows, wanted, np.append(fewer, 0.0))
    assert again == pytest.approx(found, abs=1e-6), "from the solution without the last column"


def test_prices_are_found_from_times() -> None:
    rng = np.random.default_rng(0)
    done, level = rng.uniform(1, 100, (40, 300)), (rng.random(300) < 0.5).astype(float)
    levels = np.stack([np.ones(300), level, 1 - level])
    seconds = 2e-3 * done[7] + 5e-4 * done[20] * level + 1e-3 * done[33]
    found = PricedTrials(done / seconds, levels).fit(np.ones(300, dtype=bool))
    assert len(found.prices) <= PRICES
    assert (found.prices >= 0).all()
    known = done[found.products] * levels[found.levels]
    assert found.prices @ known == pytest.approx(seconds, rel=0.01)
    large = {(p, v) for p, v, price in zip(found.products, found.levels, found.prices, strict=True) if price > 1e-4}
    assert large == {(7, 0), (20, 1), (33, 0)}


def test_costs_foresee_sums_where_logarithms_of_times_do_not_add_up() -> None:
    sizes = sizes_of(40)
    table = table_of(blocked, sizes)
    tuned = table.only(list(range(16)))
    features = Features(2, table.configs)
    costs, logarithms = CostModels(tuned, features, [[("T",)], []]), AdditiveModel(tuned, features)
    wrong = {
        model: np.mean([off(model.predict(table.shapes[i]), table.seconds[i]) for i in range(16, 40)])
        for model in (costs, logarithms)
    }
    assert wrong[costs] < 0.5 * wrong[logarithms]
    assert wrong[costs] < 0.15
    joint = JointModel(tuned)
    lost = [table.regret[i, joint.best(table.shapes[i])] for i in range(16, 40)]
    assert np.mean(lost) < 0.02


def test_whichever_was_less_wrong_counts_more(modeled) -> None:
    by_costs = JointModel(table_of(blocked, sizes_of(20)))
    assert by_costs.shares[1] > by_costs.shares[0]
    rng = np.random.default_rng(0)
    chance = {config: float(np.exp(rng.normal())) for config in TWO_KNOBS}
    by_sum = JointModel(table_of(lambda m, n, config: m**0.3 * n**0.7 * chance[config], sizes_of(20)))
    assert by_sum.shares[1] < by_sum.shares[0]


def test_from_few_shapes_the_sum_predicts_alone(modeled) -> None:
    assert JointModel(modeled.only(list(range(MIN_SHAPES - 1)))).shares.tolist() == [1.0]
    assert len(JointModel(modeled.only(list(range(MIN_SHAPES)))).shares) == 3


def test_where_the_models_disagree_nothing_is_certain(modeled) -> None:
    seconds = modeled.seconds.copy()
    far = modeled.shapes.index((1, 250))
    seconds[far, 1:] = np.nan
    model = JointModel(replace(modeled, seconds=seconds))
    logs, variances = (np.array(found) for found in zip(*(own.foresee(far) for own in model._models), strict=True))
    mean, variance = model.foresee(far)
    assert mean == pytest.approx(model.shares @ logs)
    assert (variance >= model.shares @ variances).all()
    assert (variance - model.shares @ variances).argmax() == (model.shares @ (logs - mean) ** 2).argmax()


def test_a_failure_has_no_price(modeled) -> None:
    seconds = modeled.seconds.copy()
    seconds[:, 3] = np.inf
    failing = ShapeTable(modeled.names, modeled.shapes, modeled.configs, seconds, modeled.weights)
    features = Features(2, modeled.configs)
    assert np.isfinite(CostModels(failing, features, [[("TM",)], [("TN",)]]).predict((8, 48))).all()


def test_of_many_trials_some_are_drawn_the_same_each_time() -> None:
    configs = tuple(Config(x=x) for x in range(1, 1001))
    table = ShapeTable(("N",), ((1,), (2,), (3,)), configs, np.ones((3, 1000)), np.ones(3))
    first, again = table.sample(1200, [0, 1, 2]), table.sample(1200, [0, 1, 2])
    assert [len(own) for own in first] == [400] * 3
    assert all(np.array_equal(left, right) for left, right in zip(first, again, strict=True))
    assert not np.array_equal(np.sort(first[0]), np.sort(first[1]))


def test_a_kernel_without_knobs_that_are_tiles_has_costs() -> None:
    configs = [Config(order=order) for order in ("a", "b", "c")]

    def seconds(m: int, config: Config) -> float:
        return {"a": 100 + m, "b": 2 * m, "c": 3 * m + 1}[config["order"]]

    table = table_of(seconds, [(m,) for m in range(5, 300, 11)], ("M",), configs)
    model = JointModel(table.only(list(range(0, 27, 3))))
    chosen = [table.configs[model.best((m,))]["order"] for m in (20, 60, 160, 280)]
    assert chosen == ["b", "b", "a", "a"]
