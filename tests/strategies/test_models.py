"""Encoding, candidates, surrogate, and the strategies built on them."""

import numpy as np
import pytest

from tunewright import Config, Knob, Rule, Space, Variant
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.strategy import AcceptsPrior, PredictsRegret, Prior, Source
from tunewright.strategies.bayes import Bayes, standardize
from tunewright.strategies.candidates import EnumeratedCandidates, SampledCandidates, candidates_for
from tunewright.strategies.encoding import MAX_VALUE_COLUMNS, MAX_VALUES, Encoding
from tunewright.strategies.portfolio import MAX_EXHAUSTIVE, Portfolio
from tunewright.strategies.random import RandomSearch
from tunewright.strategies.surrogate import Surrogate, log_improvement
from tunewright.strategies.transfer import Transfer
from tunewright.testing.strategy_kit import LARGE, StrategyContract, run

SPACE = Space(
    Knob("bx", [16, 32, 48, 64, 96, 128, 192, 256]),
    Knob("by", [1, 2, 4, 8, 16]),
    Knob("tile", [1, 2, 3, 4]),
    Knob("shared", [False, True]),
    Knob("order", ["ij", "ji", "blocked"]),
    rules=[Rule("a block has at most 1,024 threads", lambda bx, by: bx * by <= 1024)],
)
VARIED = Space(
    Knob("threads", [1, 2, 4]),
    variants=[
        Variant("library"),
        Variant("blocked", Knob("tile", [8, 16, 32]), Knob("order", ["ij", "ji"])),
        Variant("packed", Knob("tile", [64, 128])),
    ],
)


def seconds(config, shift=0.0):
    """A made-up kernel: best at bx 64, by 4, tile 4 with shared memory; its optimum moves with `shift`."""
    off = abs(np.log2(config["bx"]) - 6 - shift) + abs(np.log2(config["by"]) - 2) + abs(config["tile"] - 4)
    off += 0.7 * (not config["shared"]) + {"ij": 0.0, "ji": 0.4, "blocked": 0.2}[config["order"]]
    return 1e-3 * float(np.exp(0.5 * off))


def timed(config, shift=0.0):
    return Trial(config, Timing((seconds(config, shift),)))


def best_after(strategy, count, answer=timed):
    tried = []
    for _ in range(count):
        (config,) = strategy.ask(1)
        strategy.tell([answer(config)])
        tried.append(seconds(config))
    return np.minimum.accumulate(tried)


class TestBayes(StrategyContract):
    @pytest.fixture
    def make(self):
        return Bayes


class TestTransfer(StrategyContract):
    @pytest.fixture
    def make(self):
        return Transfer


class TestPortfolio(StrategyContract):
    @pytest.fixture
    def make(self):
        return Portfolio


@pytest.mark.parametrize("space", [SPACE, VARIED])
def test_rows_and_configs_are_two_ways_to_say_the_same(space) -> None:
    rows = space.codes()
    assert [space.at(row) for row in rows.tolist()] == list(space)
    assert [list(space.rank(config)) for config in space] == rows.tolist()
    assert space.feasible(rows).all()


def test_rows_outside_the_space_are_told_apart() -> None:
    rows = np.array([[7, 4, 0, 0, 0], [3, 2, 0, 1, 2], [8, 0, 0, 0, 0], [0, 0, 0, -1, 0]])
    assert SPACE.feasible(rows).tolist() == [False, True, False, False]
    assert VARIED.feasible(np.array([[0, 1, -1, -1], [0, 1, 0, -1], [2, 1, 2, -1], [2, 1, 1, -1]])).tolist() == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("space", [SPACE, VARIED])
def test_points_lie_in_the_unit_cube_and_tell_configs_apart(space) -> None:
    points = Encoding(space).points(space.codes())
    assert points.min() >= 0
    assert points.max() <= 1
    assert len(np.unique(points, axis=0)) == len(space)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_surrogate_learns_that_good_values_are_no_neighbors(seed: int) -> None:
    space = Space(Knob("block", [16 << i for i in range(10)]), Knob("unroll", [1, 2, 4, 8]), Knob("tile", range(1, 7)))
    encoding, rows = Encoding(space), space.codes()
    slow = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1, 0])
    values, points = slow[rows[:, 0]] + 0.05 * rows[:, 1], encoding.points(rows)
    tried = np.random.default_rng(seed).permutation(len(rows))[:24]
    model = Surrogate(encoding.lengths(), encoding.owners)
    model.fit(points[tried], values[tried])
    model.learn(points[tried], values[tried])
    others = np.setdiff1d(np.arange(len(rows)), tried)
    assert np.corrcoef(model.predict(points[others])[0], values[others])[0, 1] > 0.93


@pytest.mark.parametrize("space", [SPACE, VARIED])
def test_values_of_a_knob_share_a_length_scale(space) -> None:
    encoding = Encoding(space)
    assert encoding.points(space.codes()).shape[1] == len(encoding.owners)
    assert len(encoding.lengths()) == encoding.owners.max() + 1
    numbers = [knob for knob in (*space.knobs, *(k for v in space.variants for k in v.knobs)) if len(knob.values) > 2]
    shared = [owner for owner, count in enumerate(np.bincount(encoding.owners)) if count > 1]
    assert 1 <= len(shared) <= len(numbers)


def test_many_values_have_no_columns() -> None:
    knobs = [Knob(f"k{i}", range(1, 11)) for i in range(20)]
    assert np.bincount(Encoding(Space(*knobs)).owners).tolist().count(10) == MAX_VALUE_COLUMNS // 10
    assert (np.bincount(Encoding(Space(Knob("k", range(1, MAX_VALUES + 2)))).owners) == 1).all()


def test_powers_of_two_are_known() -> None:
    rows = np.array(
        [
            SPACE.rank(Config(bx=bx, by=2, tile=tile, shared=True, order="ij"))
            for bx, tile in [(64, 4), (96, 4), (96, 3)]
        ]
    )
    assert Encoding(SPACE).count_uneven(rows).tolist() == [0, 1, 2]


def test_a_small_terrain_shows_all_there_is_and_a_large_one_a_sample() -> None:
    rng = np.random.default_rng(0)
    small, row = candidates_for(SPACE), np.array(SPACE.rank(SPACE[40]))
    assert isinstance(small, EnumeratedCandidates)
    assert len(small.sample(rng)) == len(SPACE)
    assert {SPACE.at(r) for r in small.neighbors(row).tolist()} == set(SPACE.neighbors(SPACE[40], reach=None))
    assert isinstance(candidates_for(LARGE), SampledCandidates)


def test_a_sampled_terrain_sees_the_same_neighbours_as_a_whole_one() -> None:
    rng, row = np.random.default_rng(0), np.array(SPACE.rank(SPACE[40]))
    whole, sampled = EnumeratedCandidates(SPACE), SampledCandidates(SPACE)
    for candidates in (whole, sampled):
        assert candidates.mark_seen(SPACE[41])
        assert not candidates.mark_seen(SPACE[41])
    assert {tuple(r) for r in whole.neighbors(row)} == {tuple(r) for r in sampled.neighbors(row)}
    assert {tuple(r) for r in whole.adjacent(row, rng)} - {tuple(row)} == {
        tuple(r) for r in sampled.adjacent(row, rng)
    } - {tuple(row)}
    assert SPACE[41] not in {SPACE.at(r) for r in sampled.sample(rng).tolist()}


def test_the_surrogate_predicts_what_it_was_shown_and_doubts_what_it_was_not() -> None:
    rng = np.random.default_rng(1)
    points = rng.random((60, 3))
    values = np.sin(5 * points[:, 0]) + 0.1 * points[:, 1]
    model = Surrogate(np.ones(3))
    model.fit(points[:40], values[:40])
    model.learn(points[:40], values[:40])
    mean, spread = model.predict(points)
    assert np.abs(mean[:40] - values[:40]).max() < 0.1
    assert np.abs(mean[40:] - values[40:]).mean() < 0.25 * values.std()
    assert spread[:40].mean() < spread[40:].mean() < model.predict(points + 30)[1].mean()
    assert np.abs(model.draw(points[:5], rng, 4000).mean(0) - mean[:5]).max() < 0.05


def test_a_surrogate_that_learns_point_by_point_predicts_as_one_that_learns_at_once() -> None:
    rng = np.random.default_rng(4)
    points, values, others = rng.random((60, 5)), rng.standard_normal(60), rng.random((20, 5))
    steps, once = Surrogate(np.r_[np.ones(3), 2.0, 2.0]), Surrogate(np.r_[np.ones(3), 2.0, 2.0])
    for fitted in (20, 40):  # the hyperparameters change, then points follow, leave and change places
        steps.fit(points[:fitted], values[:fitted])
        once.fit(points[:fitted], values[:fitted])
        for rows in (*map(np.arange, range(fitted, 60, 7)), np.arange(10), np.r_[5, 3:60], np.arange(60)):
            steps.learn(points[rows], values[rows])
    once.learn(points, values)
    for stepped, whole in zip(steps.predict(others), once.predict(others), strict=True):
        np.testing.assert_allclose(stepped, whole, rtol=1e-4, atol=1e-5)


def test_the_surrogates_slopes_are_those_of_its_cost() -> None:
    rng = np.random.default_rng(2)
    points, values = rng.random((12, 4)), rng.standard_normal(12)
    model = Surrogate(np.array([1.0, 1.0, 2.8]), np.array([0, 1, 2, 2]))  # the last two columns share a scale
    squared_distances = ((points[:, None] - points[None]) ** 2).reshape(144, 4) @ np.eye(3)[[0, 1, 2, 2]]
    theta = model._theta + 0.1 * rng.standard_normal(5)
    _, gradient = model._cost(theta, squared_distances, values)
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-5
        numeric = (
            model._cost(theta + step, squared_distances, values)[0]
            - model._cost(theta - step, squared_distances, values)[0]
        ) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=1e-3, abs=1e-4)


def test_expected_improvement_is_exact_where_floats_hold_it_and_ordered_where_they_do_not() -> None:
    rng = np.random.default_rng(3)
    for mean in (-1.0, 0.0, 1.5):
        drawn = np.maximum(0.2 - (mean + 0.7 * rng.standard_normal(2_000_000)), 0).mean()
        (score,) = log_improvement(np.array([mean]), np.array([0.7]), 0.2)
        assert np.exp(score) == pytest.approx(drawn, rel=0.02)
    far = log_improvement(np.linspace(2, 28, 60), np.ones(60), 0.0)
    assert (np.diff(far) < 0).all()


def test_failures_and_the_very_slow_weigh_the_same() -> None:
    values, best, deviation = standardize(np.array([0.0, 0.1, 0.2, 9.0, np.nan]), 1.0)
    assert values[3] == values[4] == values.max()
    assert best == values[0]
    assert deviation < 1


@pytest.mark.parametrize("make", [Bayes, Portfolio])
def test_a_model_needs_fewer_trials_than_chance(make) -> None:
    ends = [best_after(make(SPACE, np.random.default_rng(s)), 40)[-1] for s in range(5)]
    luck = [best_after(RandomSearch(SPACE, np.random.default_rng(s)), 40)[-1] for s in range(5)]
    assert np.mean(ends) < np.mean(luck)
    assert np.median(ends) == pytest.approx(min(map(seconds, SPACE)))


def test_failures_turn_the_search_away() -> None:
    def answer(config):
        if config["shared"]:
            return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "out of shared memory"))
        return timed(config)

    search = Bayes(SPACE, np.random.default_rng(0))
    best_after(search, 20, answer)
    late = []
    for _ in range(20):
        (config,) = search.ask(1)
        search.tell([answer(config)])
        late.append(config["shared"])
    assert np.mean(late) < 0.4


def source(shift, count=60, seed=0):
    rng = np.random.default_rng(seed)
    return Source(f"device {shift}", [timed(config, shift) for config in SPACE.sample(rng, count)])


@pytest.mark.parametrize("make", [Transfer, Portfolio])
def test_what_other_keys_showed_leads_at_once_where_it_holds(make) -> None:
    warm, cold = [], []
    for seed in range(4):
        informed, plain = make(SPACE, np.random.default_rng(seed)), make(SPACE, np.random.default_rng(seed))
        assert isinstance(informed, AcceptsPrior)
        informed.inform(Prior([source(0.0), source(0.5, seed=1)]))
        warm.append(best_after(informed, 8)[-1])
        cold.append(best_after(plain, 8)[-1])
    assert np.mean(warm) < np.mean(cold)
    assert np.median(warm) < 1.3 * min(map(seconds, SPACE))


@pytest.mark.parametrize("make", [Transfer, Portfolio])
def test_a_prior_that_is_wrong_loses_its_say(make) -> None:
    upside_down = [Trial(t.config, Timing((1e-6 / t.seconds,))) for t in source(0.0).trials]
    ends = []
    for seed in range(4):
        misled = make(SPACE, np.random.default_rng(seed))
        misled.inform(Prior([Source("elsewhere", upside_down)]))
        ends.append(best_after(misled, 60)[-1])
    assert np.median(ends) < 1.1 * min(map(seconds, SPACE))


def test_a_prior_about_other_knobs_is_no_prior() -> None:
    strangers = [Trial(Config(unroll=i), Timing((1e-3,))) for i in range(20)]
    search = Transfer(SPACE, np.random.default_rng(0))
    search.inform(Prior([Source("another space", strangers)]))
    assert not search.informed
    assert search.ask(1)


@pytest.mark.slow
def test_the_outlook_darkens_as_the_search_goes_on() -> None:
    search = Portfolio(SPACE, np.random.default_rng(0))
    assert isinstance(search, PredictsRegret)
    assert search.forecast() is None
    best_after(search, 20)
    early = search.forecast()
    best_after(search, 120)
    late = search.forecast()
    assert 0 <= late.gain < early.gain
    assert late.regret < early.regret < 1


def test_a_tiny_space_is_simply_tried_whole() -> None:
    tiny = Space(Knob("tile", range(1, MAX_EXHAUSTIVE + 1)))
    tried = run(Portfolio(tiny, np.random.default_rng(0)), 4, 100)
    assert set(tried) == set(tiny)


def test_a_step_to_another_variant_keeps_what_both_have() -> None:
    row = np.array(VARIED.rank(Config(variant="library", threads=2)))
    near = [VARIED.at(neighbor) for neighbor in EnumeratedCandidates(VARIED).neighbors(row).tolist()]
    assert {config["variant"] for config in near} == {"library", "blocked", "packed"}
    assert all(config["threads"] == 2 for config in near if config["variant"] != "library")
    tiled = np.array(VARIED.rank(Config(variant="blocked", threads=2, tile=8, order="ij")))
    others = [VARIED.at(neighbor) for neighbor in EnumeratedCandidates(VARIED).neighbors(tiled).tolist()]
    assert all(config["threads"] == 2 for config in others if config["variant"] != "blocked")
