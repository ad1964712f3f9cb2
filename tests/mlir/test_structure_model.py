"""The model of structures: what suits a product, from times of other products."""

import msgspec
import numpy as np
import pytest

from tunewright.mlir import payloads
from tunewright.mlir.dot_plans import dot_plan
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.model_plans import model_plan
from tunewright.mlir.row_plans import row_plan
from tunewright.mlir.seeds import predict_configs, register_configs, seed_configs
from tunewright.mlir.structure_model import FEW, Core, ProductShape, StructureModel, Table, shipped_tables
from tunewright.spaces.config import VARIANT, Config

FOUND_AT_512 = {"variant": "packed rows", "mr": 4, "nr": 64, "kr": 8, "pk": 16}
"""What a search at 512^3 found once; it does not suit 1024^3, whose right operand does not fit into L2."""


def without(*names):
    return [table for table in shipped_tables() if table.name not in names]


def first_losses(tables):
    """How many times the best recorded time the best of the first configs takes, for each product left out."""
    losses = []
    for left_out in tables:
        model = StructureModel([table for table in tables if table is not left_out])
        times = {Config(config): time for config, time in left_out.times}
        tried = model.first(left_out.shape, list(times), core=left_out.core)
        best = min(time for time in times.values() if time)
        losses.append(min((times[config] or np.inf) for config in tried) / best)
    return losses


def test_another_structure_than_the_one_found_at_another_size_is_tried() -> None:
    plan = gemm_plan(payloads.matmul(1024, 1024, 1024, after="relu"))
    seeds = predict_configs(plan, [FOUND_AT_512], tables=without("gemm 1024x1024x1024"))
    assert seeds[0][VARIANT] == "packed rows"
    assert seeds[1][VARIANT] == "packed columns"
    assert all(seed in plan.space for seed in seeds)
    assert len(seeds) <= 1 + FEW[0] * FEW[1]


def test_products_left_out_find_a_good_config_in_six_trials() -> None:
    tables = shipped_tables()
    assert np.mean(first_losses(tables)) < 1.08
    rng = np.random.default_rng(0)
    shuffled = [
        msgspec.structs.replace(
            one, times=[(config, one.times[i][1]) for i, (config, _) in zip(order, one.times, strict=True)]
        )
        for one in tables
        for order in [rng.permutation(len(one.times))]
    ]
    assert np.mean(first_losses(shuffled)) > 1.08, "the test would pass without a model"


def test_the_prediction_depends_on_whether_operands_fit_the_cache() -> None:
    core, tables = Core(1 << 15, 1 << 20, 16), []
    for size in (128, 192, 256, 384, 768, 1024, 1536, 2048):
        fits = size * size * 4 <= core.l2
        times = [
            (
                {"variant": f"packed {nest}", "mr": mr, "nr": 64, "kr": 8},
                (1.0 if nest == "rows" else 1.3) if fits else 4.0 if nest == "rows" else 1.0,
            )
            for nest in ("rows", "columns")
            for mr in (2, 4, 8)
        ]
        tables.append(Table(str(size), 1, size, size, size, "f32", core, times))
    model = StructureModel(tables)
    configs = [Config(config) for config, _ in tables[0].times]
    for size, best in ((200, "packed rows"), (1800, "packed columns")):
        first = model.first(ProductShape(1, size, size, size), configs, (1, 1), core)
        assert [one[VARIANT] for one in first] == [best]


@pytest.mark.parametrize(
    "plan",
    [gemm_plan(payloads.matmul(500, 333, 77)), gemm_plan(payloads.matmul(1, 64, 4096))],
    ids=["odd sizes", "one row"],
)
def test_predicted_configs_are_of_the_space(plan) -> None:
    seeds = predict_configs(plan)
    assert seeds
    assert all(seed in plan.space for seed in seeds)
    assert seeds == predict_configs(plan)


def test_a_search_that_must_keep_the_last_digits_has_seeds_too() -> None:
    for payload in (payloads.matmul(64, 64, 64, element="bf16"), payloads.matmul(61, 50, 70, element="bf16")):
        plan = dot_plan(payload)
        exact = plan.space.exact(())
        seeds = seed_configs(plan)
        assert len([seed for seed in seeds if seed in exact and seed[VARIANT] != "as written"]) >= 1
        assert seeds[: len(predict_configs(plan))] == predict_configs(plan)


def test_tables_without_times_predict_nothing() -> None:
    plan = gemm_plan(payloads.matmul(64, 64, 64))
    core = Core(1 << 15, 1 << 20, 16)
    for tables in ([], [Table("none", 1, 8, 8, 8, "f32", core, [({"variant": "packed rows", "mr": 4}, None)])]):
        assert predict_configs(plan, tables=tables) == []


def test_what_is_no_single_product_has_only_what_others_found() -> None:
    plan = row_plan(payloads.softmax(8, 64))
    (found,) = plan.space.sample(np.random.default_rng(0), 1)
    assert predict_configs(plan) == []
    assert predict_configs(plan, [found]) == [found]
    assert ProductShape.of(payloads.matmul(None, 8, 8)) is None


def test_a_product_of_a_known_shape_starts_from_the_prediction_and_others_from_registers() -> None:
    product, rows = gemm_plan(payloads.matmul(64, 64, 64)), row_plan(payloads.softmax(8, 64))
    assert seed_configs(product) == predict_configs(product)
    assert seed_configs(rows) == register_configs(rows) != []


def test_a_structure_without_measured_times_is_not_predicted() -> None:
    payload = payloads.matmul(64, 64, 64)
    product, model = gemm_plan(payload), model_plan(payload)
    assert predict_configs(model) == []
    assert seed_configs(model) == register_configs(model) != []
    known = {str(config[VARIANT]) for table in shipped_tables() for config, _ in table.times}
    assert {str(seed[VARIANT]) for seed in predict_configs(product)} <= known


def test_tables_have_rows_of_several_structures_that_work() -> None:
    tables = shipped_tables()
    assert len({table.name for table in tables}) == len(tables) >= 10
    for table in tables:
        assert len({config[VARIANT] for config, time in table.times if time}) > 1
        assert all(time is None or time > 0 for _, time in table.times)
