import threading
import time

import numpy as np
import pytest

from tunewright.measure.clock import HostTimer, Regime, make_sampler, use_same_clock, weighted_mean
from tunewright.model.trial import median
from tunewright.stats import interval


def spin(seconds=0.003):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def hidden():
    thread = threading.Thread(target=spin, args=(0.01,))
    thread.start()
    thread.join()


def clock_of(call, threads=1):
    timer = HostTimer(call, threads)
    for _ in range(3):
        timer(1)
    return timer.clock


@pytest.mark.clock("a thread that only computes may give up its processor once in three launches of 3 ms, not twice")
def test_one_thread_is_timed_by_its_cpu() -> None:
    assert clock_of(spin) == "thread"


def test_several_threads_are_timed_by_the_wall() -> None:
    assert clock_of(spin, threads=2) == "wall"


def test_a_kernel_that_waits_is_not_free() -> None:
    timer = HostTimer(lambda: time.sleep(0.02), 1)
    timer(1)
    assert timer(1) >= 0.02
    assert timer.clock == "wall"


def test_a_kernel_that_waits_for_half_its_time_is_not_half_free() -> None:
    def half():
        spin(0.005)
        time.sleep(0.005)

    timer = HostTimer(half, 1)
    visit = make_sampler(timer, None)
    assert timer.clock == "wall"
    assert visit() >= 0.009


@pytest.mark.clock("one in three timers must see that a launch which sleeps for 1 us takes longer than it computes")
def test_many_short_waits_are_seen_too() -> None:
    timers = [HostTimer(lambda: time.sleep(1e-6), 1) for _ in range(3)]
    for timer in timers:
        make_sampler(timer, None)
    assert "wall" in {timer.clock for timer in timers}


def test_those_who_are_compared_are_timed_alike() -> None:
    timers = [HostTimer(spin, 1), HostTimer(lambda: time.sleep(0.002), 1), Steady()]
    for timer in timers[:2]:
        make_sampler(timer, None)
    assert use_same_clock(timers) == "wall"
    assert [timer.clock for timer in timers] == ["wall", "wall", "steady"]


def test_putting_back_takes_its_time_too() -> None:
    restored = []
    visit = make_sampler(HostTimer(lambda: spin(2e-5), 1), lambda: restored.append(time.sleep(0.005)))
    restored.clear()
    visit()
    assert 1 <= len(restored) <= 3  # by the time of launches alone, 60 of them would make a visit


def test_threads_in_hiding_count() -> None:
    timer = HostTimer(hidden, 1)
    assert timer(1) >= 0.009
    assert timer.clock != "thread"


@pytest.mark.clock("beside the wait that is meant, a thread that computes may give up its processor once, not twice")
def test_waiting_once_by_chance_does_not_change_the_clock() -> None:
    waits = iter([0.05])

    def call():
        spin()
        if pause := next(waits, 0):
            time.sleep(pause)

    assert clock_of(call) == "thread"


class Steady:
    """A clock on which each launch takes the same, and each flush is noted."""

    clock = "steady"

    def __init__(self, seconds=2e-6):
        self.seconds, self.counts, self.flushed = seconds, [], []

    def __call__(self, count):
        self.counts.append(count)
        return count * self.seconds

    def flush(self, *, whole):
        self.flushed.append(whole)


def test_a_short_call_is_timed_many_at_once() -> None:
    timer = Steady()
    visit = make_sampler(timer, None)
    assert visit() == pytest.approx(2e-6)
    assert timer.counts[-1] >= 400


def test_a_hot_visit_discards_its_first_launch_unless_launches_are_long() -> None:
    timer = Steady(1e-3)
    visit = make_sampler(timer, None)
    timer.counts.clear()
    visit()
    assert timer.counts == [1, 1]
    long = Steady(5e-2)
    visit = make_sampler(long, None)
    long.counts.clear()
    visit()
    assert long.counts == [1]


@pytest.mark.parametrize(("regime", "whole"), [(Regime.CONTEXT, False), (Regime.COLD, True)])
def test_single_launches_come_after_other_work(regime, whole) -> None:
    timer = Steady()
    visit = make_sampler(timer, None, regime)
    timer.counts.clear()
    assert visit() == pytest.approx(2e-6)
    assert set(timer.counts) == {1}
    assert timer.flushed == [whole] * len(timer.counts)


@pytest.mark.clock("after a flush a megabyte takes over 10 % longer, in most of 15 pairs; neighbors share the cache")
def test_what_lies_in_cache_is_slower_to_reach_after_a_flush() -> None:
    """Summing a megabyte: real memory, real caches."""
    data = np.ones(1 << 17)
    ratios = []
    hot = make_sampler(HostTimer(data.sum, 1), None)
    cold = make_sampler(HostTimer(data.sum, 1), None, Regime.COLD)
    for _ in range(15):
        warm = hot()
        ratios.append(cold() / warm)
    assert median(ratios) > 1.1


def test_what_changes_its_arguments_is_restored_before_every_launch() -> None:
    calls = []
    make_sampler(HostTimer(lambda: calls.append("run"), 1), lambda: calls.append("restore"))()
    assert calls[:4] == ["restore", "run", "restore", "run"]
    assert calls.count("run") == calls.count("restore")


def test_a_kernel_that_waits_does_not_take_for_ever() -> None:
    calls = []
    make_sampler(HostTimer(lambda: calls.append(time.sleep(0.01)), 1), None)()
    assert len(calls) <= 6  # by its CPU time, it would take dozens to fill a sample


def test_a_reading_that_is_no_number_is_taken_again_and_then_refused() -> None:
    class Broken(Steady):
        readings = iter([1e-3, 1e-3, float("nan"), 1e-3, 1e-3])

        def __call__(self, count):
            return next(self.readings, float("nan"))

    visit = make_sampler(Broken(), None)
    assert visit() == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="invalid time"):
        visit()


def test_cases_count_by_their_weight() -> None:
    assert weighted_mean([1.0, 4.0], [900, 100]) == pytest.approx(1.3)


def test_an_interval_holds_its_centre_and_shrinks_with_samples() -> None:
    few, many = [1.0, 1.1, 1.2, 1.3], [1.0, 1.1, 1.2, 1.3] * 25
    for samples in (few, many, [1.0], [2.0, 1.0]):
        low, high = interval(samples)
        assert low <= median(samples) <= high
    assert interval(many)[1] - interval(many)[0] < interval(few)[1] - interval(few)[0]
