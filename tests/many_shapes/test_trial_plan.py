from dataclasses import replace

import numpy as np
import pytest

from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import DRAWN_SHAPES, EACH, FIRST_SHAPES, TrialPlan, Trials
from tunewright.shapes.representatives import MANY, PER_SHAPE, START, Representatives
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


def test_of_many_shapes_some_stand_for_all_and_more_the_longer_the_search_is(many) -> None:
    plan, made = planned(many, trials=150), 0
    while made < 150:
        wanted = plan.next()
        answered(plan, many, wanted)
        made += len(wanted)
    tried = np.flatnonzero(plan.table.works.any(axis=1))
    assert 150 // PER_SHAPE <= len(tried) <= 60, "more than at first only because no trial on these was worth it"
    model = JointModel(plan.table)
    rest = np.setdiff1d(np.arange(len(many.shapes)), tried)[::20]
    assert np.mean([many.regret[i, model.best(many.shapes[i])] for i in rest]) < 0.05, "0.08 with a trial of each"
    unlimited, sizes = planned(many), []
    for _ in range(40):
        answered(unlimited, many, unlimited.next())
        sizes.append(int(unlimited.table.works.any(axis=1).sum()))
    assert sizes[FIRST_SHAPES] == START
    assert sizes[-1] > START


def test_shapes_that_stand_for_all_are_the_heavy_ones_and_those_with_trials(many) -> None:
    weights = np.ones(len(many.shapes))
    weights[100:110] = 1e5
    seconds = np.full_like(many.seconds, np.nan)
    seconds[7, 3] = 1.0
    table = replace(many, seconds=seconds, weights=weights)
    drawn = Representatives(table, 100, 0)
    shapes = drawn.shapes(seconds)
    assert len(drawn.drawn) == 100 // PER_SHAPE
    assert set(shapes) == drawn.drawn | {7}, "and what has trials"
    assert set(range(100, 110)) <= drawn.drawn
    assert Representatives(table, 100, 0).shapes(seconds) == shapes, "the same each time"
    assert Representatives(table, 100, 1).shapes(seconds) != shapes
    part = drawn.standing_for_all(table, shapes)
    assert part.weights.sum() == pytest.approx(weights.sum())
    assert [part.shapes[i] for i in range(len(shapes))] == [many.shapes[i] for i in shapes]
    assert part.weights[shapes.index(7)] == weights[7], "it was not drawn, so it stands for itself"
    while drawn.grow():
        pass
    assert drawn.shapes(seconds) == list(range(len(many.shapes))), "in the end all"


def test_a_plan_ends_when_every_shape_that_is_worth_it_was_tried(modeled) -> None:
    """Of many shapes with two configs each, all are tried in the end."""
    shapes = tuple((m,) for m in range(1, MANY + 40))
    seconds = np.array([[1.0, 1.5 if m % 2 else 0.5] for (m,) in shapes])
    table = ShapeTable(("M",), shapes, modeled.configs[:2], seconds, np.ones(len(shapes)))
    plan, rounds = planned(table), 0
    while wanted := plan.next():
        answered(plan, table, wanted)
        rounds += 1
    assert rounds < 200
    assert plan.table.works.any(axis=1).all()


def test_heavy_shapes_do_not_wait_for_light_ones_that_have_trials(many) -> None:
    light, heavy = range(60), range(60, 70)
    weights = np.array([1.0] * 60 + [1e4] * 10)
    seconds = np.full((70, len(many.configs)), np.nan)
    seconds[light, :2] = many.seconds[light, :2]
    table = replace(many, shapes=many.shapes[:70], seconds=seconds, weights=weights)
    plan = TrialPlan(table, trials=60)
    for _ in range(6):
        answered(plan, many, plan.next())
    assert plan.table.works[heavy].any(axis=1).all()


@pytest.mark.parametrize("largest", [False, True])
def test_extreme_weights_stay_numbers(many, largest) -> None:
    weights = np.full(300, 1e308) if largest else 10.0 ** np.random.default_rng(0).uniform(-300, 300, 300)
    table = replace(many, shapes=many.shapes[:300], seconds=np.full((300, len(many.configs)), np.nan), weights=weights)
    plan = TrialPlan(table, trials=1200)
    for _ in range(4):
        answered(plan, many, plan.next())
    drawn = plan._representatives
    while drawn.grow():
        part = drawn.standing_for_all(plan.table, drawn.shapes(plan.seconds))
        assert (part.weights > 0).all()
