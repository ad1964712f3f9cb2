"""The simulated machine keeps its promises, and the suite catches what it is there to catch."""

import sys

import msgspec
import numpy as np
import pytest

from tunewright.errors import PluginError
from tunewright.testing import torture as kit
from tunewright.testing.torture import (
    CLEAR_WINNERS,
    CRASHES,
    CROWD,
    NEAR_TIES,
    REFUSALS,
    SCENARIOS,
    Crash,
    DoBench,
    KernelTuner,
    NoChoice,
    Refused,
    SimulatedMachine,
    Truth,
    TunewrightTuner,
    torture,
)
from tunewright.testing.torture.disturbances import CONTENTION, NATURAL, NOISE, POISONED, QUIET, UNREADABLE

TRUTH = Truth((1e-4, 2e-4, 1.5e-4), default=1)
NAMED = {scenario.name: scenario for scenario in SCENARIOS}


def by_name(values):
    return pytest.mark.parametrize("given", values, ids=lambda value: value.name)


class Hasty:
    """Believes one reading of each candidate."""

    name = "hasty"

    def choose(self, machine):
        return int(np.argmin([machine.run(i) for i in range(machine.candidates)]))


class Stubborn:
    """Never tries anything."""

    name = "stubborn"

    def choose(self, machine):
        return machine.default


class Fragile:
    """Times every candidate well enough to see it crash, and dies of it."""

    name = "fragile"

    def choose(self, machine):
        return int(np.argmin([np.median(machine.each(i, 20)) for i in range(machine.candidates)]))


class Timid(Fragile):
    """Takes the default as soon as anything fails."""

    def choose(self, machine):
        try:
            return super().choose(machine)
        except Crash:
            return machine.default


@by_name(NATURAL)
def test_the_same_seed_reads_the_same_and_another_does_not(given) -> None:
    one, same, other = (SimulatedMachine(TRUTH, given, seed) for seed in (1, 1, 2))
    readings = [[machine.run(i, 3) for i in (0, 1, 2, 0)] for machine in (one, same, other)]
    assert readings[0] == readings[1]
    assert readings[0] != readings[2]


@by_name(NATURAL)
def test_launches_take_the_same_time_together_as_one_by_one(given) -> None:
    together, alone = SimulatedMachine(TRUTH, given, 7), SimulatedMachine(TRUTH, given, 7)
    assert together.run(0, 1000) == pytest.approx(sum(alone.run(0) for _ in range(1000)))
    assert together.now == pytest.approx(alone.now)
    np.testing.assert_allclose(together.each(1, 50), [alone.run(1) for _ in range(50)])


@by_name(NATURAL)
def test_time_passes_by_what_launches_really_take(given) -> None:
    machine = SimulatedMachine(TRUTH, given, 3)
    machine.run(0)
    before, spent = machine.now, machine.spent
    read = machine.run(0, 500) + machine.each(0, 20).sum()
    assert machine.now - before == pytest.approx(read)
    assert machine.spent - spent == pytest.approx(read)


def test_a_lying_clock_does_not_change_what_really_passes() -> None:
    for lying in (POISONED, UNREADABLE):
        machine, honest = (
            SimulatedMachine(TRUTH, disturbance, 5) for disturbance in (lying, NAMED["quiet"].disturbances[0])
        )
        readings = machine.each(0, 5000)
        honest.each(0, 5000)
        odd = ~(readings > 0.5e-4)
        assert 0.005 < odd.mean() < 0.02
        assert machine.spent == pytest.approx(honest.spent, rel=0.01)


@by_name(NATURAL)
def test_the_truth_is_what_long_averages_show(given) -> None:
    machine = SimulatedMachine(TRUTH, given, 11)
    rounds = np.array([[machine.run(i, 2000) for i in range(3)] for _ in range(400)]).mean(axis=0)
    np.testing.assert_allclose(rounds / rounds[0], [1, 2, 1.5], rtol=0.05)
    if given in (QUIET, NOISE):
        assert rounds[0] / 2000 == pytest.approx(1e-4, rel=0.01)


def test_a_million_launches_cost_no_more_than_a_few_thousand() -> None:
    machine = SimulatedMachine(TRUTH, NOISE, 1)
    assert machine.run(0, 1 << 20) == pytest.approx(1e-4 * (1 << 20), rel=0.01)
    assert machine.launches[0] == 1 << 20


def test_candidates_crash_or_are_refused_as_the_truth_says() -> None:
    machine = SimulatedMachine(msgspec.structs.replace(TRUTH, crashes={0: 3}, refused=frozenset({2})), QUIET)
    machine.run(0, 3)
    with pytest.raises(Crash, match="illegal"):
        machine.run(0)
    with pytest.raises(Refused, match="too many resources"):
        machine.run(2)
    machine.run(1, 1000)
    assert machine.failed == {0, 2}


def test_problems_are_what_the_scenarios_promise() -> None:
    for scenario in SCENARIOS:
        truths = [scenario.problem(number, 0)[0] for number in range(40)]
        assert all(truth.default in truth.working for truth in truths)
        close = [sum(truth.regret(i) <= 0.01 for i in truth.working) for truth in truths]
        if scenario is NEAR_TIES:
            assert set(close) == {2, 3, 4}
            assert sum(truth.regret(truth.default) <= 0.01 for truth in truths) == 20
            assert min(truth.regret(truth.default) for truth in truths[1::2]) >= 0.03
        elif scenario is CROWD:
            assert max(truth.regret(i) for truth in truths for i in truth.working) <= 0.06
        else:
            assert set(close) == {1}
    assert all(CRASHES.problem(number, 0)[0].crashes for number in range(40))
    assert all(REFUSALS.problem(number, 0)[0].refused for number in range(40))


def test_a_tuner_that_believes_one_reading_flips_and_errs() -> None:
    noisy, tied = torture(Hasty(), [NAMED["noise"], NEAR_TIES], problems=40)
    assert noisy.wrong >= 10
    assert noisy.flip_rate >= 0.2
    assert noisy.regret > 0.01
    assert noisy.worst_regret > 0.03
    assert tied.flip_rate >= 0.4
    assert tied.losers >= 1
    assert noisy.lost == tied.lost == 0


def test_a_tuner_that_never_leaves_the_default_is_slow_but_loses_nothing() -> None:
    for score in torture(Stubborn(), problems=20):
        assert (score.flips, score.losers, score.lost, score.kernel_seconds) == (0, 0, 0, 0)
        assert score.wrong >= 10, score


def test_a_tuner_that_dies_of_a_crash_has_lost_its_work() -> None:
    (score,) = torture(Fragile(), [CRASHES], problems=10)
    assert (score.lost, score.pairs) == (20, 0)


def test_a_tuner_that_a_crash_keeps_from_trying_the_rest_has_lost_work_too() -> None:
    (score,) = torture(Timid(), [CRASHES], problems=10)
    assert score.pairs == 10
    assert score.lost >= 10


def test_scores_are_the_same_whenever_they_are_made() -> None:
    once, again, other = (torture(DoBench(), [NAMED["drift"]], problems=5, seed=seed) for seed in (0, 0, 1))
    assert once == again
    assert once != other


def test_ours_survives_every_scenario() -> None:
    for score in torture(TunewrightTuner(), problems=1):
        assert (score.lost, score.pairs) == (0, 1), score
        assert score.kernel_seconds > 0


def test_ours_finds_a_clear_winner_where_it_is_quiet() -> None:
    (score,) = torture(TunewrightTuner(), CLEAR_WINNERS[:1], problems=5)
    assert (score.wrong, score.flips, score.losers) == (0, 0, 0)


def test_the_way_of_do_bench_takes_what_is_refused_and_dies_of_what_crashes() -> None:
    refused, crashed = torture(DoBench(), [REFUSALS, CRASHES], problems=5)
    assert (refused.lost, refused.wrong) == (0, 0)
    assert crashed.lost == 10


def test_the_way_of_do_bench_dies_of_an_estimate_of_nothing() -> None:
    stopped = msgspec.structs.replace(QUIET, misread=lambda rng, seconds: 0 * seconds)
    with pytest.raises(NoChoice, match="ZeroDivisionError"):
        DoBench().choose(SimulatedMachine(TRUTH, stopped))


class TritonOnAMachine:
    """A driver of Triton's whose events are read from a machine's clock."""

    def __init__(self, machine) -> None:
        self.machine, self.at = machine, 0.0

    def get_device_interface(self):
        return self

    def get_empty_cache_for_benchmark(self) -> None: ...

    def clear_cache(self, cache) -> None: ...

    def synchronize(self) -> None: ...

    def Event(self, enable_timing):  # noqa: N802 - Triton's name
        return TritonOnAMachine(self.machine)

    def record(self) -> None:
        self.at = self.machine.now

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def test_the_way_of_do_bench_is_tritons_own(monkeypatch) -> None:
    testing = pytest.importorskip("triton.testing")
    for number in range(3):
        truth, _ = NAMED["contention"].problem(number, 0)
        real, ours = (SimulatedMachine(truth, CONTENTION, number) for _ in range(2))
        monkeypatch.setattr(testing.runtime.driver, "_active", TritonOnAMachine(real))
        medians = [testing.do_bench(lambda i=i: real.run(i), quantiles=(0.5, 0.2, 0.8))[0] for i in range(8)]  # noqa: B023
        assert DoBench().choose(ours) == int(np.argmin(medians))
        assert ours.launches == real.launches


def test_kernel_tuner_itself_chooses_by_the_clock_of_the_machine() -> None:
    pytest.importorskip("kernel_tuner")
    machine = SimulatedMachine(TRUTH, QUIET)
    assert KernelTuner().choose(machine) == 0
    # Seven iterations of each, and the first once more to warm up.
    assert machine.launches == {0: 14, 1: 7, 2: 7}


def test_kernel_tuner_skips_what_is_refused_and_dies_of_what_crashes() -> None:
    pytest.importorskip("kernel_tuner")
    tuner = KernelTuner()
    refusing = SimulatedMachine(msgspec.structs.replace(TRUTH, refused=frozenset({0})), QUIET)
    assert tuner.choose(refusing) == 2
    crashing = SimulatedMachine(msgspec.structs.replace(TRUTH, crashes={2: 3}), QUIET)
    with pytest.raises(Crash, match="candidate 2"):
        tuner.choose(crashing)


def test_a_missing_kernel_tuner_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    with pytest.raises(PluginError, match="pip install kernel_tuner"):
        KernelTuner()


def test_every_public_name_says_what_it_is() -> None:
    for name in kit.__all__:
        assert getattr(kit, name).__doc__
