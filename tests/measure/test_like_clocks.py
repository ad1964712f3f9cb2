"""Candidates that are compared are timed by the same clock, also slow ones; and what a trial costs is its own."""

import os
import subprocess
import sys
import time

import numpy as np

import tunewright as tw
from tunewright.measure.case_check import CaseCheck
from tunewright.measure.evaluator import Evaluator, EvaluatorOptions
from tunewright.measure.race import RaceOptions
from tunewright.model.trial import Incumbent, Stage, TrialRequest
from tunewright.spaces.config import Config

COMPUTES, WAITS = Config(way="computes"), Config(way="waits")


def evaluator_of(seconds, tmp_path):
    @tw.tune(tw.Space(tw.Knob("way", ["computes", "waits", "waits too"])), session=tw.Session(store="memory:"))
    def kernel(x: tw.In("N"), *, way="computes"):
        if way != "computes":
            time.sleep(seconds)
        end = time.thread_time() + (seconds if way == "computes" else 0)
        while time.thread_time() < end:
            pass
        return x * 2

    evaluator = kernel.make_evaluator(kernel.cases_like([np.ones(8)]), tmp_path)
    evaluator.prepare()
    return evaluator


def test_slow_finalists_are_raced_by_one_clock(tmp_path) -> None:
    race = evaluator_of(0.03, tmp_path).race([COMPUTES, WAITS], RaceOptions(rounds=3, seconds=1.0, fixed=True))
    assert not race.failures
    assert race.clock == "wall"


def test_a_race_ends_by_itself_before_its_process_is_ended(tmp_path) -> None:
    options = RaceOptions(rounds=10_000, seconds=600.0, fixed=True, until=time.time() + 1.0)
    race = evaluator_of(0.03, tmp_path).race([COMPUTES, WAITS], options)
    assert all(standing.samples for standing in race.standings)


def test_a_race_that_takes_longer_than_usual_ends_with_the_budget_all_the_same(tmp_path) -> None:
    evaluator, began = evaluator_of(0.03, tmp_path), time.time()
    evaluator.options = EvaluatorOptions(time_factor=10.0)
    race = evaluator.race([COMPUTES, WAITS], RaceOptions(rounds=10_000, seconds=600.0, span=600.0, until=began + 1.0))
    assert all(standing.samples for standing in race.standings)
    assert time.time() - began < 5.0  # ten times as long would be nine


def test_slow_finalists_that_compute_are_raced_by_their_cpu_time(tmp_path) -> None:
    race = evaluator_of(0.03, tmp_path).race([COMPUTES], RaceOptions(rounds=2, seconds=1.0, fixed=True))
    assert race.clock == "thread"


def test_the_incumbent_is_loaded_once_whatever_clock_the_others_need(tmp_path) -> None:
    evaluator, loaded = evaluator_of(2e-3, tmp_path), []
    load = evaluator.workload.load

    def counting(config, artifact):
        loaded.append(config)
        return load(config, artifact)

    evaluator.workload = Counted(evaluator.workload, counting)
    for config in (WAITS, Config(way="waits too")):
        trial = evaluator(TrialRequest(config, Incumbent(COMPUTES, 2e-3)))
        assert trial.outcome.clock == "wall"
    assert loaded.count(COMPUTES) == 1


class Counted:
    """A workload that says what it loads."""

    def __init__(self, workload, load):
        self._workload, self.load = workload, load

    def __getattr__(self, name):
        return getattr(self._workload, name)


class Idle:
    """A workload whose only candidate fails at once."""

    name, lock, oracle_seconds = "idle", None, 0.0

    def prepare(self):
        pass

    def build(self, config):
        return config

    def load(self, config, artifact):
        raise ValueError("no")


def test_a_trial_does_not_cost_the_time_for_which_it_waits_for_the_device(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tunewright.measure.evaluator.time.perf_counter", lambda: now[0])

    def on_stage(stage):
        now[0] += {Stage.BUILD: 1.0, Stage.WAIT: 100.0, Stage.LOAD: 3.0}.get(stage, 0.0)

    trial = Evaluator(Idle())(TrialRequest(COMPUTES), on_stage)
    assert (trial.build_seconds, trial.run_seconds) == (1.0, 3.0)


class Once(CaseCheck):
    """A case whose launch is a function without arguments."""

    def __init__(self, launch):
        self._launch = launch

    def run(self, place, draw, **options):
        self._launch()
        return {}


def test_a_launch_that_waits_needs_the_wall_clock() -> None:
    check = Once(lambda: time.sleep(0.01))
    assert check._timed_run()[1] >= 0.01
    assert check.clock == "wall"


def test_a_launch_that_waits_for_a_processor_only_is_timed_by_its_cpu_time() -> None:
    spins = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        check = Once(compute_and_yield)
        seconds = [check._timed_run()[1] for _ in range(3)]
        assert max(seconds) > 0.04, "the machine was not busy"
        assert check.clock == "thread"
    finally:
        for spin in spins:
            spin.kill()
            spin.wait()


def compute_and_yield() -> None:
    """Computes for 30 ms, and leaves its processor for a moment, as a thread does that asks another for the lock."""
    time.sleep(1e-6)
    end = time.thread_time() + 0.03
    while time.thread_time() < end:
        pass
