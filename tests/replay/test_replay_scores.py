from math import inf

import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.replay.runs import RunKey, Trace
from tunewright.replay.scores import TraceScore, checkpoints, regret_by_evaluations, regret_by_seconds, summarize


def traced(*seconds, table="a", optimum=1.0, seed=0, budget=200, cost=2.0):
    """A trace of these times; None failed."""
    stamp = RunKey(table, "some", "1", {}, seed, budget)
    count = len(seconds)
    return Trace(stamp, table, table, optimum, tuple(range(count)), seconds, (cost,) * count, (0.002,) * count, 0.004)


def test_a_trace_is_scored_as_by_hand() -> None:
    trace = traced(None, 4.0, 2.0, 3.0, 1.05, None, 1.2, 1.01, 1.0)
    score = TraceScore.of(trace, at=(1, 2, 3, 4, 6, 8, 9, 100))
    assert score.ratios == pytest.approx(
        {1: 0.0, 2: 1 / 4, 3: 1 / 2, 4: 1 / 2, 6: 1 / 1.05, 8: 1 / 1.01, 9: 1.0, 100: 1.0}
    )
    assert (score.e5, score.e1) == (5, 8)  # the bounds are kept when they are met exactly
    assert (score.s5, score.s1) == (10.0, 16.0)
    assert score.cpu_ms == pytest.approx(1e3 * (0.004 + 9 * 0.002) / 9)


def test_what_never_came_near_is_infinitely_far() -> None:
    score = TraceScore.of(traced(None, 1.5))
    assert (score.e5, score.e1, score.s5, score.s1) == (inf, inf, inf, inf)
    nothing = TraceScore.of(traced())
    assert set(nothing.ratios.values()) == {0.0}
    assert nothing.e5 == inf


def test_a_summary_takes_means_of_ratios_and_medians_of_medians() -> None:
    scores = [
        TraceScore.of(trace, at=(2,))
        for trace in (
            traced(2.0, 1.0, table="a"),
            traced(2.0, 2.0, table="a"),
            traced(1.0, 1.0, table="a"),
            traced(4.0, 4.0, 1.0, table="b"),
            traced(4.0, 4.0, 4.0, 1.0, table="b"),
        )
    ]
    said = summarize(scores)
    assert said["r2"] == pytest.approx((1 + 0.5 + 1 + 0.25 + 0.25) / 5)
    assert said["e1"] == np.median([np.median([2, inf, 1]), np.median([3, 4])])
    assert said["within1"] == 4 / 5
    assert said["runs"] == 5


def test_the_budget_is_the_last_mark() -> None:
    assert checkpoints(200) == (25, 50, 100, 200)
    assert checkpoints(60) == (25, 50, 60)
    assert checkpoints(10) == (10,)


def test_regret_over_evaluations_is_the_mean_over_tables_of_the_mean_over_seeds() -> None:
    traces = [
        traced(2.0, 1.0, table="a", budget=3),
        traced(4.0, None, 2.0, table="a", budget=3),
        traced(None, 1.0, table="b", budget=3),
    ]
    (curve,) = regret_by_evaluations({"some": traces})
    assert curve.xs == [1, 2, 3]
    expected = [((0.5 + 0.75) / 2 + 1.0) / 2, ((0 + 0.75) / 2 + 0.0) / 2, ((0 + 0.5) / 2 + 0.0) / 2]
    assert curve.middle == pytest.approx(expected)
    assert all(low <= mid <= high for low, mid, high in zip(curve.low, curve.middle, curve.high, strict=True))
    assert curve.low[0] == pytest.approx(0.75)
    assert curve.high[0] == pytest.approx(0.875)


def test_a_band_is_narrower_with_more_seeds() -> None:
    rng = np.random.default_rng(0)

    def width(count):
        runs = [traced(*(1 + rng.random(5)), seed=seed, budget=5) for seed in range(count)]
        (curve,) = regret_by_evaluations({"some": runs})
        return curve.high[0] - curve.low[0]

    assert width(100) < width(10) / 2


def test_regret_over_seconds_follows_what_was_spent() -> None:
    cheap, dear = traced(2.0, 1.0, cost=1.0), traced(2.0, 1.0, cost=4.0)
    one, two = regret_by_seconds({"cheap": [cheap], "dear": [dear]})
    at = {round(x, 6): (a, b) for x, a, b in zip(one.xs, one.middle, two.middle, strict=True)}
    end = max(at)
    assert end == pytest.approx((2 + 8) / 2)
    assert at[end] == pytest.approx((0.0, 0.5))
    assert at[min(at)] == pytest.approx((0.0, 1.0))  # at 2.5 s the cheap one is done, the dear one has nothing


def test_recordings_without_costs_are_not_compared_by_seconds() -> None:
    with pytest.raises(SettingsError, match="leave out --cost"):
        regret_by_seconds({"some": [traced(1.0, cost=0.0)]})
