from dataclasses import replace

import numpy as np

from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import DRAWN_SHAPES, EACH, FIRST_SHAPES, TrialPlan, Trials
from tunewright.shapes.table import ShapeTable


def planned(table: ShapeTable, **given: int) -> TrialPlan:
    return TrialPlan(replace(table, seconds=np.full_like(table.seconds, np.nan)), **given)


def answered(plan: TrialPlan, table: ShapeTable, wanted: Trials) -> None:
    for place in wanted:
        plan.seconds[place] = table.seconds[place]


def test_each_of_the_first_shapes_gets_a_few_trials_and_then_many_shapes_one(modeled) -> None:
    plan, seen = planned(modeled), []
    for _ in range(FIRST_SHAPES):
        wanted = plan.next()
        shapes, configs = zip(*wanted, strict=True)
        assert len(set(shapes)) == 1
        assert len(set(configs)) == EACH
        seen.append(shapes[0])
        answered(plan, modeled, wanted)
    assert len(set(seen)) == FIRST_SHAPES
    assert len({shape for shape, _ in plan.next()}) > 1, "then a round of many shapes"


def test_after_some_shapes_one_of_the_first_configs_is_the_predicted_best(modeled) -> None:
    plan, predicted = planned(modeled), 0
    for number in range(FIRST_SHAPES):
        known, wanted = plan.table, plan.next()
        shape, first = wanted[0]
        if number >= DRAWN_SHAPES:
            assert first == JointModel(known).best(modeled.shapes[shape])
            predicted += modeled.regret[shape, first] < 0.1
        answered(plan, modeled, wanted)
    assert predicted >= (FIRST_SHAPES - DRAWN_SHAPES) / 2, "it is often a good one"


def test_a_small_budget_gets_fewer_first_shapes_and_a_space_of_one_config_no_second_trial(modeled) -> None:
    plan = planned(modeled, trials=4 * EACH)
    for _ in range(2):
        answered(plan, modeled, plan.next())
    assert len(plan.next()) > EACH, "half of the trials are spent on first shapes"
    single = replace(modeled, configs=modeled.configs[:1], seconds=modeled.seconds[:, :1])
    assert len(planned(single).next()) == 1


def test_what_fails_on_the_first_shapes_does_not_stop_the_plan(modeled) -> None:
    works = np.arange(len(modeled.configs)) % 3 == 0
    failing = replace(modeled, seconds=np.where(works, modeled.seconds, np.inf))
    plan = planned(failing)
    for _ in range(FIRST_SHAPES + 20):
        answered(plan, failing, plan.next())
    assert np.isfinite(plan.seconds).any(axis=1).all(), "each shape has a config that works"


def test_a_kernel_of_which_nothing_works_is_tried_to_the_end(modeled) -> None:
    failing = replace(
        modeled,
        weights=modeled.weights[:5],
        shapes=modeled.shapes[:5],
        seconds=np.full((5, len(modeled.configs)), np.inf),
    )
    plan = planned(failing)
    while wanted := plan.next():
        assert len(set(wanted)) == len(wanted)
        assert all(np.isnan(plan.seconds[place]) for place in wanted)
        answered(plan, failing, wanted)
    assert np.isinf(plan.seconds).all()
