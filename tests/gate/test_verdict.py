"""The verdict of a gate, on sides that say themselves how long they take."""

import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.gate import verdict
from tunewright.gate.verdict import GateOptions, GateOutcome, PairedSamples, judge, run_gate
from tunewright.pools.command_times import ProcessTimes


class Clock:
    """Time that passes only when a side runs."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(verdict.time, "monotonic", lambda: self.now)


class Noisy:
    """Sides of 0.1 s with noise: jitter of each run, bursts, drift that both share, and a bias of each process."""

    def __init__(self, clock, share, seed, *, jitter=0.03, bursts=0.05, bias=0.0, inner=1) -> None:
        self.clock, self.share, self.rng = clock, share, np.random.default_rng(seed)
        self.jitter, self.bursts, self.bias, self.inner = jitter, bursts, bias, inner

    def run(self, base):
        rng = self.rng
        seconds = base * (1 + 0.1 * np.sin(self.clock.now / 7)) * np.exp(rng.normal(0, self.jitter))
        seconds *= 1 + (rng.random() < self.bursts) * rng.exponential(0.5)
        self.clock.now += seconds
        return ProcessTimes(seconds, seconds)

    def draw(self, swap, seconds):
        bases = [0.1 * np.exp(self.rng.normal(0, self.bias)), 0.1 * (1 + self.share)]
        return [(self.run(bases[0]), self.run(bases[1])) for _ in range(self.inner)]


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def outcomes(clock, share, count=40, **noise):
    results = []
    for seed in range(count):
        clock.now = 0.0
        results.append(run_gate(Noisy(clock, share, seed, **noise), GateOptions(0.03, 60.0, seed)).outcome)
    return results


def test_equal_sides_never_fail(clock) -> None:
    for noise in ({}, {"jitter": 0.15}, {"jitter": 0.001}, {"bursts": 0.3}, {"bias": 0.02, "inner": 6}):
        assert GateOutcome.SLOWER not in outcomes(clock, 0.0, count=12, **noise), noise


@pytest.mark.slow
def test_equal_sides_never_fail_in_a_thousand_races(clock) -> None:
    for noise in ({}, {"jitter": 0.15}, {"jitter": 0.001}, {"bursts": 0.3}, {"bias": 0.02, "inner": 6}):
        assert GateOutcome.SLOWER not in outcomes(clock, 0.0, count=200, **noise), noise


def test_a_slow_down_of_less_than_half_the_limit_never_fails(clock) -> None:
    assert GateOutcome.SLOWER not in outcomes(clock, 0.01)


def test_a_slow_down_as_large_as_the_limit_is_found(clock) -> None:
    found = outcomes(clock, 0.03)
    assert found.count(GateOutcome.SLOWER) >= 0.9 * len(found)
    assert set(outcomes(clock, 0.1)) == {GateOutcome.SLOWER}


def test_a_side_that_became_faster_passes_soon(clock) -> None:
    assert set(outcomes(clock, -0.05, count=20)) == {GateOutcome.NOT_SLOWER}
    assert clock.now < 20


def test_too_much_noise_for_the_time_is_not_known_and_says_what_to_do(clock) -> None:
    result = run_gate(Noisy(clock, 0.02, 1, jitter=0.5), GateOptions(0.03, 10.0))
    assert result.outcome is GateOutcome.UNKNOWN
    assert "neither excludes nor shows 3 %" in result.sentence()
    assert "give it more time (about" in result.remedy()
    assert clock.now < 11


def test_few_pairs_tell_nothing(clock) -> None:
    result = run_gate(Noisy(clock, 0.5, 1), GateOptions(0.03, 0.5))
    assert result.outcome is GateOutcome.UNKNOWN
    assert "too few to tell anything" in result.sentence()
    assert result.remedy().startswith("give it more time (about")


def test_a_difference_of_a_single_process_is_no_proof(clock) -> None:
    """Within each pair of processes the samples agree perfectly, but processes differ by 5 % for all their life."""
    found = outcomes(clock, 0.0, jitter=0.0005, bursts=0.0, bias=0.05, inner=20, count=30)
    assert GateOutcome.SLOWER not in found


def test_the_busy_time_of_other_programs_does_not_count(clock) -> None:
    rng = np.random.default_rng(0)

    class Delayed:
        def draw(self, swap, seconds):
            def run(base):
                delay = rng.exponential(0.1)
                clock.now += base
                return ProcessTimes(base + delay, base, base, delay)

            return [(run(0.1), run(0.103))]

    result = run_gate(Delayed(), GateOptions())
    assert result.clock == "undelayed"
    assert result.outcome is GateOutcome.SLOWER
    assert result.ratio == pytest.approx(1.03, abs=0.002)


def test_waiting_of_its_own_counts() -> None:
    """A side that sleeps longer is slower, although it computes as long."""
    pair = ProcessTimes(0.100, 0.09, 0.09, 0.0), ProcessTimes(0.105, 0.09, 0.09, 0.0)
    result = judge(PairedSamples([[pair]] * 20), GateOptions(), 2.0)
    assert result.outcome is GateOutcome.SLOWER


def test_helpers_are_not_hidden_by_the_clock() -> None:
    """What other threads of a side compute makes the wall clock the right one: its delay may be its own doing."""
    alone, helped = ProcessTimes(0.1, 0.1, 0.1, 0.0), ProcessTimes(0.12, 0.2, 0.1, 0.02)
    result = judge(PairedSamples([[(alone, helped)]] * 20), GateOptions(), 2.0)
    assert result.clock == "wall"
    assert result.outcome is GateOutcome.SLOWER


def test_a_slow_down_between_half_the_limit_and_the_limit_passes_once_that_is_sure() -> None:
    pair = ProcessTimes(0.1, 0.1), ProcessTimes(0.102, 0.1)
    assert judge(PairedSamples([[pair]] * 50), GateOptions(), 5.0).outcome is GateOutcome.NOT_SLOWER


@pytest.mark.parametrize("options", [{"by": 0}, {"by": 3}, {"by": float("nan")}, {"seconds": 0}])
def test_limits_that_mean_nothing_are_refused(options) -> None:
    with pytest.raises(SettingsError, match="give"):
        GateOptions(**options)
