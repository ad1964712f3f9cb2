"""How graphs are timed."""

import time
from itertools import count
from types import SimpleNamespace

import pytest

from tunewright.measure import clock, race
from tunewright.measure.race import RaceOptions
from tunewright.spaces.config import Config
from tunewright.torch import evaluator
from tunewright.torch.evaluator import EvaluationOptions, InProcessEvaluator, sustained_sampler


def test_what_a_visit_begins_with_does_not_count(monkeypatch):
    ticks, cold = count(), iter([9.0, 8.0])
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    assert sustained_sampler(lambda: next(cold, 1.0), 6.0)() == 1.0


def test_a_visit_without_a_length_is_one():
    seen = []
    assert sustained_sampler(lambda: seen.append(1) or 2.0, 0.0)() == 2.0
    assert len(seen) == 1


@pytest.fixture
def now(monkeypatch):
    """Seconds by a clock that only launches and pauses move; every timer of the host reads it."""
    passed = [0.0]

    def sleep(seconds):
        passed[0] += seconds

    def timed(timer, times):
        began = passed[0]
        for _ in range(times):
            timer._call()
        return passed[0] - began

    shown = SimpleNamespace(monotonic=lambda: passed[0], perf_counter=lambda: passed[0], sleep=sleep)
    for module in (evaluator, race):
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(clock, "perf_counter", shown.perf_counter)
    monkeypatch.setattr(clock.HostTimer, "__call__", timed)
    return passed


def test_candidates_that_share_what_they_read_gain_nothing_by_it(now):
    """The first launch after another candidate's is slow, unless that one read the same: as caches have it."""
    last, warm = [None], [0]

    def launch(weights, seconds):
        def call():
            warm[0] = warm[0] + 1 if last[0] == weights else 0
            last[0] = weights
            now[0] += seconds if warm[0] > 2 else 2 * seconds

        return call

    ways = {"eager": ("shared", 0.00125), "default": ("shared", 0.0012), "frozen": ("own", 0.001)}
    configs = [Config({"way": name}) for name in ways]

    def ratio(**options):
        evaluator = InProcessEvaluator(
            lambda config: launch(*ways[config["way"]]), lambda _: None, EvaluationOptions(**options)
        )
        run = evaluator.race(configs, RaceOptions(rounds=8, seconds=60.0, fixed=True))
        return run.ratio(1, 2)[0]

    short, long = ratio(), ratio(sample_seconds=0.12)
    assert long == pytest.approx(1.2)
    assert short < 1.1  # where the two that share follow one another, the second is fast
