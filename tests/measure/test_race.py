"""Races on made-up clocks, where the truth is known."""

import numpy as np
import pytest

from tunewright.measure import race
from tunewright.measure.race import Terms
from tunewright.measure.stats import paired
from tunewright.model import wire

SEEDS = 40


def ramp(t, rng):
    return 1 + 0.2 * min(1.0, t / 200)


def throttled(t, rng):
    return 1.25 if (t // 40) % 2 else 1.0


def bursts(t, rng):
    return 1 + (rng.random() < 0.1) * rng.exponential(0.5)


def heavy_tails(t, rng):
    return 1 + 0.02 * abs(rng.standard_t(1.5))


def two_modes(t, rng):
    return 1.15 if rng.random() < 0.3 else 1.0


def quiet(t, rng):
    return 1.0


def on_a_clock(truth, weather, rng, tick=0.0):
    """Visits that take `truth` seconds, in the given weather, with one percent of noise."""
    clock = [0]

    def visit(seconds):
        clock[0] += 1
        read = seconds * weather(clock[0], rng) * np.exp(rng.normal(0, 0.01))
        return max(tick, round(read / tick) * tick) if tick else read

    return [lambda seconds=seconds: visit(seconds) for seconds in truth]


def shuffled(rng, count=8, apart=1.03, base=1e-3):
    return rng.permutation(base * apart ** np.arange(count))


@pytest.mark.parametrize("weather", [quiet, ramp, throttled, bursts, heavy_tails, two_modes])
def test_candidates_three_percent_apart_are_told_in_any_weather(weather) -> None:
    wrong = lost = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = shuffled(rng)
        found = race.run(on_a_clock(truth, weather, rng), Terms(seed=seed))
        wrong += truth[found.leader] > 1.01 * truth.min()
        lost += found.standings[int(truth.argmin())].left is not None
    assert wrong <= SEEDS * 0.02
    assert lost <= SEEDS * 0.02


def test_a_clock_of_one_microsecond_is_enough_for_a_tenth_of_a_millisecond() -> None:
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = shuffled(rng, base=1e-4)
        found = race.run(on_a_clock(truth, quiet, rng, tick=1e-6), Terms(seed=seed))
        assert truth[found.leader] <= 1.01 * truth.min()


def test_a_stopwatch_errs_where_the_race_does_not() -> None:
    """The same ramp, each candidate timed alone in a block: what this is for."""
    wrong = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = shuffled(rng)
        blocks = [np.median([visit() for _ in range(25)]) for visit in on_a_clock(truth, ramp, rng)]
        wrong += truth[int(np.argmin(blocks))] > 1.01 * truth.min()
    assert wrong >= 0.3 * SEEDS


def test_gross_losers_cost_two_visits() -> None:
    rng = np.random.default_rng(0)
    truth = [1e-3, 2e-3, 5e-3, 1.01e-3]
    found = race.run(on_a_clock(truth, quiet, rng))
    assert [len(standing.samples) for standing in found.standings][1:3] == [2, 2]
    assert found.standings[2].left == 2
    assert found.standings[2].ratio == pytest.approx(5, rel=0.05)


def test_near_ties_end_as_a_tie_set_that_holds_the_truth() -> None:
    inside = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = shuffled(rng, count=4, apart=1.001)
        found = race.run(on_a_clock(truth, quiet, rng), Terms(seed=seed))
        inside += int(truth.argmin()) in found.ties
    assert inside >= SEEDS * 0.97


def test_it_ends_when_nobody_can_be_a_margin_faster() -> None:
    rng = np.random.default_rng(0)
    found = race.run(on_a_clock([1e-3, 1e-3], quiet, rng), Terms(margin=0.05))
    assert found.settled
    assert len(found.standings[0].samples) < 20


def test_it_ends_with_the_budget_and_says_that_it_is_not_settled() -> None:
    rng = np.random.default_rng(0)
    found = race.run(on_a_clock([1e-3, 1e-3], two_modes, rng), Terms(margin=1e-4, rounds=10))
    assert not found.settled
    assert found.tested
    assert found.ties == [0, 1]
    assert not race.run(on_a_clock([1e-3, 1e-3], quiet, rng), Terms(rounds=2)).tested


def test_one_alone_wins_at_once() -> None:
    found = race.run([lambda: 1e-3])
    assert (found.leader, found.settled, found.ties) == (0, True, [0])


def test_the_same_samples_give_the_same_bytes() -> None:
    def run():
        rng = np.random.default_rng(3)
        return wire.encode(race.run(on_a_clock(shuffled(rng), bursts, rng), Terms(seed=3)))

    assert run() == run()


def test_a_race_survives_travel() -> None:
    rng = np.random.default_rng(3)
    for rounds in (1, 2, 3, 20):
        found = race.run(on_a_clock([1e-3, 1.2e-3, 9e-3], quiet, rng), Terms(rounds=rounds))
        assert wire.decode(wire.encode(found), race.Race) == found


def test_one_sample_in_five_may_be_anything() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(0.05, 0.01, 20)
    spoilt = clean.copy()
    spoilt[:4] = 50.0
    assert paired(spoilt)[0] == pytest.approx(paired(clean)[0], abs=0.01)
    centre, low, high = paired(clean)
    assert low < centre < high
    assert low > 0


def test_bounds_hold_at_every_look() -> None:
    """Two equal candidates, looked at after every round: how often is one believed to be slower?"""
    believed = 0
    for seed in range(300):
        differences = np.random.default_rng(seed).normal(0, 0.02, 60)
        believed += any(paired(differences[:n])[1] > 0 for n in range(race.FIRST_TEST, 61))
    assert believed <= 300 * 0.02
