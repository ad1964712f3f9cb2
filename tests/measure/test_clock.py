import time

import pytest

from tunewright.measure.clock import HostTimer, honest, repeated
from tunewright.measure.stats import interval
from tunewright.model.trial import median


def test_one_thread_is_timed_by_its_cpu_several_by_the_wall() -> None:
    assert honest(1) == "cpu"
    assert honest(2) == "wall"
    assert HostTimer(lambda: time.sleep(0.02), 1)(1) < 0.01
    assert HostTimer(lambda: time.sleep(0.02), 2)(1) >= 0.02


def test_a_short_call_is_timed_many_at_once() -> None:
    class Fake:
        clock = "fake"
        counts: list[int] = []  # noqa: RUF012 - one instance

        def __call__(self, count):
            self.counts.append(count)
            return count * 2e-6

    timing = repeated(Fake(), None, seconds=0.01)
    assert timing.samples == pytest.approx((2e-6,) * len(timing.samples))
    assert timing.clock == "fake"
    assert Fake.counts[-1] > 100


def test_what_changes_its_arguments_is_restored_before_every_launch() -> None:
    calls = []
    repeated(HostTimer(lambda: calls.append("run"), 1), lambda: calls.append("restore"), seconds=0.001)
    assert calls[:4] == ["restore", "run", "restore", "run"]
    assert calls.count("run") == calls.count("restore")


def test_a_kernel_that_waits_does_not_take_for_ever() -> None:
    began = time.perf_counter()
    repeated(HostTimer(lambda: time.sleep(0.01), 1), None, seconds=0.05)
    assert time.perf_counter() - began < 1


def test_a_clock_that_gives_no_number_is_refused() -> None:
    timer = HostTimer(lambda: None, 1)
    timer._now = iter([0.0, float("nan")] * 99).__next__
    with pytest.raises(ValueError, match="no number"):
        repeated(timer, None, seconds=0)


def test_an_interval_holds_its_centre_and_shrinks_with_samples() -> None:
    few, many = [1.0, 1.1, 1.2, 1.3], [1.0, 1.1, 1.2, 1.3] * 25
    for samples in (few, many, [1.0], [2.0, 1.0]):
        low, high = interval(samples)
        assert low <= median(samples) <= high
    assert interval(many)[1] - interval(many)[0] < interval(few)[1] - interval(few)[0]
