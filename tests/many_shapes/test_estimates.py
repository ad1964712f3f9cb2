"""Few trials of each shape: what was verified on a bucket may serve it, at a predicted time that nothing takes for one
that was measured."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tunewright.model.decision import Decision
from tunewright.report.cover_plot import CurvePoint, drawable
from tunewright.shapes.cover import cover, curve, probability_within
from tunewright.shapes.estimates import with_estimates
from tunewright.shapes.rules import fit_rule, verified_buckets
from tunewright.shapes.serving import rule_decision
from tunewright.shapes.table import ShapeTable
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import bucket_of
from tunewright.testing.keys import KEY


def some_trials(table: ShapeTable, share: float, seed: int, failing: float = 0.0) -> ShapeTable:
    """A share of all trials, drawn at random; some fail."""
    draws = np.random.default_rng(seed).random(table.seconds.shape)
    seconds = np.where(draws < share, table.seconds, np.where(draws < share + failing, np.inf, np.nan))
    return replace(table, seconds=seconds)


def denser(table: ShapeTable) -> ShapeTable:
    """Twice as many shapes: of each bucket several."""
    shapes = tuple(dict.fromkeys((m + more, n) for (m, n), more in product(table.shapes, (0, 1))))
    seconds = np.array(
        [[table.seconds[table.shapes.index((m if (m, n) in table.shapes else m - 1, n))]] for m, n in shapes]
    )
    return replace(table, shapes=shapes, seconds=seconds[:, 0], weights=np.ones(len(shapes)))


@pytest.mark.parametrize("seed", range(2))
def test_only_what_was_verified_on_the_bucket_is_estimated(modeled, seed) -> None:
    known = some_trials(denser(modeled), 0.15, seed, failing=0.05)
    found = with_estimates(known)
    assert found.estimated is not None
    assert found.estimated.any()
    buckets = [bucket_of(shape) for shape in known.shapes]
    for shape, config in zip(*np.nonzero(found.estimated), strict=True):
        outcomes = [known.seconds[i, config] for i, bucket in enumerate(buckets) if bucket == buckets[shape]]
        assert np.isnan(known.seconds[shape, config])
        assert np.isfinite(outcomes).any()
        assert not np.isinf(outcomes).any()
    same = ~found.estimated
    assert np.array_equal(found.seconds[same], known.seconds[same], equal_nan=True), "what was measured stays"
    assert np.array_equal(found.verified, known.works)
    for config in range(len(known.configs)):
        assert verified_buckets(found, config) == verified_buckets(known, config), "a prediction verifies nothing"


def test_shapes_without_trials_and_full_tables_are_left_as_they_are(modeled) -> None:
    assert with_estimates(modeled) is modeled
    nothing = modeled.only([])
    assert with_estimates(nothing) is nothing
    table = denser(modeled)
    known = some_trials(table, 0.2, 1)
    seconds = known.seconds.copy()
    seconds[:9] = np.nan
    found = with_estimates(replace(known, seconds=seconds))
    assert np.isnan(found.seconds[:9]).all()


def test_estimates_are_near_and_say_how_wrong_they_may_be(modeled) -> None:
    table = denser(modeled)
    found = with_estimates(some_trials(table, 0.2, 2))
    where = found.estimated
    off = np.log(found.seconds[where] / table.seconds[where])
    assert np.abs(off).mean() < 0.1
    assert 0.3 < (off**2).mean() / (found.errors[where] ** 2).mean() < 3
    assert (found.errors[~where & found.works] == 0).all(), "nothing is known of the errors of what was measured"
    given = some_trials(replace(table, errors=np.full_like(table.seconds, 0.01)), 0.2, 2)
    assert (with_estimates(given).errors[~where] == 0.01).all()


def test_an_estimate_is_expected_to_lose_more_than_nothing_and_is_never_the_best_that_others_are_compared_with() -> (
    None
):
    rows = [({"M": m}, Config(x=x), 1.0 + x) for m in (5, 6) for x in (0, 1)]
    table = ShapeTable.of(rows)
    estimated = np.array([[False, False], [True, False]])
    seconds, errors = np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[0.0, 0.0], [0.1, 0.0]])
    guessed = replace(table, seconds=seconds, errors=errors, estimated=estimated)
    assert guessed.regret[0].tolist() == [0.0, 1.0]
    assert guessed.regret[1, 1] == 0.0, "the fastest that was measured there"
    assert guessed.regret[1, 0] == pytest.approx(0.0, abs=1e-3), "surely twice as fast loses nothing"
    drawn = np.exp(np.random.default_rng(0).normal(0, 0.3, 200_000))
    equal = replace(guessed, seconds=np.array([[1.0, 2.0], [2.0, 2.0]]), errors=3 * errors)
    assert equal.regret[1, 0] == pytest.approx((drawn - 1).clip(0).mean(), rel=0.01)
    sure = probability_within(equal, 0.05)
    assert sure[1, 1] == 1.0
    assert 0.5 < sure[1, 0] < 0.62
    assert probability_within(equal, 0.05)[0].tolist() == [1.0, 0.0]


def test_fewer_configs_and_a_rule_that_serves_more_shapes(modeled) -> None:
    table, gained, served = denser(modeled), 0, [0, 0]
    for seed in range(3):
        known = some_trials(table, 0.1, seed)
        tables = known, with_estimates(known)
        covers = [cover(one, 0.05, 0.5) for one in tables]
        gained += len(covers[0].configs) - len(covers[1].configs)
        rules = [fit_rule(one, "toy") for one in covers]
        for place, rule in enumerate(rules):
            configs = [rule.config(table.named(i)) for i in range(len(table.shapes))]
            served[place] += sum(config is not None for config in configs)
        verified = known.verified_on_bucket
        for found in covers:
            assert all(verified[known.shapes.index(found.table.shapes[i]), c] for i, c in enumerate(found.serves))
    assert gained > 0
    assert served[1] >= served[0]


def test_a_decision_of_a_rule_has_measured_times_only(modeled) -> None:
    known = some_trials(denser(modeled), 0.1, 3)
    found = cover(with_estimates(known), 0.05)
    decision: Decision = rule_decision(fit_rule(found, "toy"), found, KEY)
    assert decision.evidence is not None
    assert decision.evidence.trials == known.works.sum()
    assert "predicted on" in decision.evidence.notes[0]
    times = known.seconds[known.works]
    assert {decision.evidence.low, decision.evidence.high} <= set(times.tolist())


def test_a_curve_counts_shapes_that_no_config_may_serve(small) -> None:
    seconds = small.seconds.copy()
    seconds[0, 1:], seconds[1:, 0] = np.nan, np.nan
    points = curve(replace(small, seconds=seconds))
    assert [point.unserved for point in points] == [1, 0, 0]
    assert all(np.isfinite([point.mean, point.worst]).all() for point in points)
    assert json.dumps([point._asdict() for point in points], allow_nan=False)
    assert [point.configs for point in drawable(points)] == [2, 3], "others do not compare"
    alone = [CurvePoint(1, 0.1, 0.2, 3)]
    assert drawable(alone) == alone


def test_sure_estimates_never_lose_less_than_nothing() -> None:
    rows = [({"M": m}, Config(x=x), 1.0 + x) for m in (5, 6) for x in (0, 1)]
    table, estimated = ShapeTable.of(rows), np.array([[False, False], [True, False]])
    for error in (1e-9, 1e-3, 0.03, 0.5, 3.0):
        for seconds in (1e-6, 1.0, 1.999, 2.0, 1e6):
            times = np.array([[1.0, 2.0], [seconds, 2.0]])
            guessed = replace(table, seconds=times, errors=np.full((2, 2), error), estimated=estimated)
            assert np.isfinite(guessed.regret).all()
            assert guessed.regret[1, 0] >= max(0.0, seconds / 2 - 1) - 1e-9
    kept = guessed.only([0])
    assert not kept.estimated[1].any()
    assert not np.isnan(kept.regret).any()


def test_what_failed_on_a_shape_of_which_nothing_works_is_served_nowhere_in_its_bucket() -> None:
    table = ShapeTable.of([
        ({"M": 5}, Config(x=0), 1.0), ({"M": 6}, Config(x=0), float("inf")), ({"M": 64}, Config(x=1), 1.0),
    ])  # fmt: skip
    rule = fit_rule(cover(table, 0.05), "toy")
    assert [rule.config({"M": m}) for m in (5, 6, 7)] == [None, None, None]
    assert rule.config({"M": 50}) == Config(x=1)
    other = ShapeTable.of([
        ({"M": 5}, Config(x=0), 1.0), ({"M": 5}, Config(x=1), 1.2), ({"M": 6}, Config(x=0), float("inf")),
        ({"M": 6}, Config(x=1), 1.0),
    ])  # fmt: skip
    found = cover(other, 0.05)
    assert [other.configs[c]["x"] for c in found.serves] == [1, 1], "one that may serve, though the other is faster"
    assert fit_rule(found, "toy").config({"M": 5}) == Config(x=1)


def test_only_the_heaviest_shapes_are_predicted_if_there_are_very_many(modeled) -> None:
    known = some_trials(denser(modeled), 0.15, 0)
    weights = np.arange(len(known.shapes)) + 1.0
    found = with_estimates(replace(known, weights=weights), most=10 * len(known.configs))
    assert found.estimated.any(axis=1).nonzero()[0].min() >= len(known.shapes) - 10


def test_of_equals_the_curve_takes_the_config_that_loses_least() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        seconds = np.exp(rng.normal(0, 0.5, (18, 7)))
        table = ShapeTable.of(({"M": m + 1}, Config(x=x), float(seconds[m, x])) for m in range(18) for x in range(7))
        assert curve(table)[0].mean == pytest.approx(table.regret.mean(axis=0).min())
