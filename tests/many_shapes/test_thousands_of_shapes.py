"""Programs call a kernel with thousands of shapes: no step may cost as much as all pairs of them."""

import time
from dataclasses import replace

import numpy as np
import pytest

import tunewright as tw
from tunewright.cases import inputs
from tunewright.shapes.cover import cover
from tunewright.shapes.features import Features
from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.planning import TrialPlan
from tunewright.shapes.rules import MAX_BOUNDS, fit_rule
from tunewright.shapes.selection import MOST_SHAPES, _drawn, _heaviest, _uncertainty, shapes_to_tune, trials_to_make
from tunewright.shapes.table import ShapeTable
from tunewright.shapes.tuning import JointSearch, problem_of
from tunewright.stores.memory import MemoryStore


def some_trials(table: ShapeTable, each: int) -> ShapeTable:
    """So many random trials of each shape."""
    rng = np.random.default_rng(1)
    tried = np.argsort(rng.random(table.seconds.shape), axis=1) < each
    return replace(table, seconds=np.where(tried, table.seconds, np.nan))


def test_the_fall_of_variance_is_that_of_all_shapes_one_by_one(modeled) -> None:
    known = modeled.only([3, 20])
    known = replace(known, weights=np.linspace(1, 3, len(known.shapes)))
    uncertainty = _uncertainty(known, Features(2, known.configs))

    def left(one) -> float:
        every = (float((one.rows(i) @ one.covariance * one.rows(i)).sum()) for i in range(len(known.shapes)))
        return sum(weight * variance for weight, variance in zip(known.weights, every, strict=True))

    for shape in (0, 7, 34):
        assert uncertainty.gain(shape) == pytest.approx(left(uncertainty) - left(uncertainty.after(shape)), rel=1e-6)


def test_a_plan_for_thousands_of_shapes_is_made_in_seconds_and_finds_good_configs(many) -> None:
    plan, made, began = TrialPlan(replace(many, seconds=np.full_like(many.seconds, np.nan)), trials=120), 0, time.time()
    while made < 120:
        wanted = plan.next()
        for place in wanted:
            plan.seconds[place] = many.seconds[place]
        made += len(wanted)
    assert time.time() - began < 60, "it takes three seconds; by pairs of shapes, an hour"
    model = JointModel(plan.table)
    untried = [i for i in range(len(many.shapes)) if not plan.table.works[i].any()][::20]
    assert np.mean([many.regret[i, model.best(many.shapes[i])] for i in untried]) < 0.1


def test_a_round_looks_at_heavy_shapes_with_few_trials(many) -> None:
    weights = np.where(np.arange(len(many.shapes)) % 7 == 0, 5.0, 1.0)
    known = replace(some_trials(many, 2), weights=weights)
    looked = _heaviest(known, np.arange(len(many.shapes)))
    assert len(looked) == MOST_SHAPES
    assert (weights[looked] == 5.0).all()
    seconds = known.seconds.copy()
    seconds[looked] = many.seconds[looked]
    assert not set(_heaviest(replace(known, seconds=seconds), np.arange(len(many.shapes)))) & set(looked), (
        "they had their trials"
    )
    trials = trials_to_make(known, 16, JointModel(known))
    assert {shape for shape, _ in trials} <= set(looked)
    assert _heaviest(known, np.arange(5)) == list(range(5)), "few are all looked at"


def test_shapes_that_stand_for_all_are_drawn_by_weight(many) -> None:
    weights = np.full(len(many.shapes), 1e-6)
    weights[:3] = 1.0, 1.0, 2.0
    drawn = _drawn(replace(many, weights=weights))
    assert set(drawn) <= {0, 1, 2}
    assert drawn[2] > drawn[0]
    assert sum(drawn.values()) == MOST_SHAPES
    untimed = replace(many, weights=weights, seconds=np.full_like(many.seconds, np.nan))
    assert len(set(shapes_to_tune(untimed, 30))) == 30, "others can be asked for, too"


def test_a_cover_and_a_rule_of_thousands_of_shapes_are_made_in_seconds(many) -> None:
    began = time.time()
    found = cover(many, 0.05)
    rule = fit_rule(found, "toy")
    assert time.time() - began < 60, "it takes two seconds; by pairs of shapes, half an hour"
    served = [many.configs.index(rule.config(many.named(i))) for i in range(len(many.shapes))]
    assert many.regret[range(len(many.shapes)), served].mean() - found.regret.mean() < 0.05
    assert len({shape[0] for shape in many.shapes}) > MAX_BOUNDS


def test_keys_of_shapes_need_no_values(monkeypatch) -> None:
    def sums(x: tw.In("M", "N"), y: tw.InOut("N"), scale: float = 2.0, *, tile) -> None: ...

    session = tw.Session(store=MemoryStore(), pool="serial")

    def given(**sizes: int) -> list:
        return [np.ones((sizes["M"], sizes["N"])), np.ones(sizes["N"]), 2.0]

    for options in ({}, {"dtype": "int8"}, {"dtype": "bool"}, {"inputs": given}):
        kernel = tw.tune(tw.Space(tw.Knob("tile", [1, 2])), session=session, **options)(sums)
        sizes = {"M": 3, "N": 5}
        assert problem_of(kernel, sizes) == kernel.problem(kernel.example(sizes))
    monkeypatch.setattr(inputs, "random_values", None)
    plain = tw.tune(tw.Space(tw.Knob("tile", [1, 2])), session=session)(sums)
    search = JointSearch(plain, [({"M": 3, "N": n}, 1.0) for n in (100, 200)])
    assert [task.problem.key.signature.dims["N"] for task in search.tasks] == [100, 200]
