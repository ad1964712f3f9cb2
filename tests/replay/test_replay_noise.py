"""Noisy replay: trials are drawn from the recorded spread, and a race decides between the best of them."""

import numpy as np
import pytest

from tunewright.backends.replay import Recording
from tunewright.replay.noise import MAX_SPREAD, NoisyTimes
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, make_jobs, run_job
from tunewright.replay.scores import TraceScore, best_so_far


def test_spreads_are_kept_with_a_recording(recorded) -> None:
    origin = recorded(spread=0.05)
    table = origin.load()
    works = ~np.isnan(table.seconds)
    assert table.spreads[works] == pytest.approx(0.05, rel=1e-3)
    assert (table.spreads[~works] == 0).all()
    assert not recorded("toy-B").load().spreads.any()
    assert Recording.read(recorded("toy-B").path).spreads == {}


def test_a_trial_is_drawn_around_the_recorded_time_and_failures_stay(recorded) -> None:
    table = recorded(spread=0.05).load()
    rows = np.flatnonzero(~np.isnan(table.seconds))
    ratios = np.array(
        [NoisyTimes(table, seed).trial(row).seconds / table.seconds[row] for seed in range(20) for row in rows]
    )
    assert np.log(ratios).std() == pytest.approx(0.05, rel=0.15)
    assert np.log(ratios).mean() == pytest.approx(0, abs=0.01)
    failed = int(np.flatnonzero(np.isnan(table.seconds))[0])
    assert NoisyTimes(table, 0).trial(failed) is table.trials[failed]
    assert NoisyTimes(table, 0).trial(int(rows[0])) == NoisyTimes(table, 0).trial(int(rows[0]))


def test_a_wide_spread_is_capped(recorded) -> None:
    table = recorded(spread=2.0).load()
    ratios = [NoisyTimes(table, seed).trial(0).seconds / table.seconds[0] for seed in range(100)]
    assert np.log(ratios).std() < 1.5 * MAX_SPREAD


def test_the_score_is_what_the_race_decides_for_not_a_lucky_trial(recorded) -> None:
    options = ReplayOptions(24, noise=True)
    (job,) = make_jobs([recorded(spread=0.04)], [ReplayedStrategy("random")], [1], options)
    trace = run_job(job)
    true = recorded(spread=0.04).load().seconds[list(trace.rows)]
    assert trace.key.noise
    assert len(trace.decided) == len(trace.rows) == 24
    assert set(best_so_far(trace)) <= {*true[~np.isnan(true)], np.inf}
    assert TraceScore.of(trace).ratios[200] == 1.0  # all was tried, and the race is long enough


def test_a_recording_without_spreads_is_replayed_as_it_is(recorded) -> None:
    jobs = [make_jobs([recorded()], [ReplayedStrategy("random")], [1], ReplayOptions(9, noise=n))[0] for n in (0, 1)]
    plain, noisy = map(run_job, jobs)
    assert (plain.rows, plain.seconds, noisy.decided) == (noisy.rows, noisy.seconds, ())
