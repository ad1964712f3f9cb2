"""The roofline of a machine, and the least time of work under it."""

from functools import partial

import numpy as np
import pytest

from tunewright.report.roofline import Roofline, measure_bandwidth, measure_peak

LIMITS = Roofline(peak=100.0, bandwidth=((10, 20.0), (1000, 5.0)))


@pytest.mark.parametrize(
    ("nbytes", "flops", "expected"),
    [(10, 1, (0.5, "memory")), (100, 1, (20.0, "memory")), (10, 100, (1.0, "arithmetic")), (10, 0, (0.5, "memory"))],
)
def test_the_limit_that_takes_longer_binds(nbytes, flops, expected):
    assert LIMITS.least_seconds(nbytes, flops) == expected


def test_more_bytes_than_measured_move_as_fast_as_the_largest_working_set():
    assert LIMITS.bandwidth_for(5000) == 5.0


def test_the_best_of_two_measurements_is_the_higher_of_each_limit():
    other = Roofline(peak=50.0, bandwidth=((10, 30.0), (1000, 4.0)))
    assert LIMITS.best_of(other) == Roofline(100.0, ((10, 30.0), (1000, 5.0)))


def test_bandwidth_and_peak_are_measured():
    left = np.ones((16, 16))
    assert measure_peak(partial(np.matmul, left, left), 16, threads=1, samples=2) > 0
    measured = measure_bandwidth((1 << 12, 1 << 14), threads=1, samples=2)
    assert [size for size, _ in measured] == [1 << 12, 1 << 14]
    assert all(rate > 0 for _, rate in measured)
