"""How calls on tensors are timed."""

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tunewright import Config, Knob, Session, Space
from tunewright.errors import BackendError
from tunewright.measure import clock, evaluator, race
from tunewright.measure.evaluator import CONFIRMING_RACE, Evaluator
from tunewright.measure.race import RaceOptions
from tunewright.model.decision import Problem
from tunewright.model.trial import CLEARLY_FASTER, Incumbent, TrialRequest
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY
from tunewright.torch import candidate
from tunewright.torch.candidate import TorchTimingOptions, sustained_sampler
from tunewright.torch.oracle import ExpectedTensors
from tunewright.torch.tensor_sets import CallArguments
from tunewright.torch.workload import TorchWorkload

NOTHING = ExpectedTensors.of([], [])
LUCKY = 4 + race.FIRST_TEST
"""Launches of a slow candidate until its first race ends."""


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

    shown = SimpleNamespace(monotonic=lambda: passed[0], perf_counter=lambda: passed[0], sleep=sleep, time=lambda: 0.0)
    for module in (candidate, evaluator, race):
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(clock, "perf_counter", shown.perf_counter)
    monkeypatch.setattr(clock.HostTimer, "__call__", timed)
    return passed


def without_arguments(build, **options):
    """A workload of calls that compute nothing."""
    return TorchWorkload("nothing", build, CallArguments(()), lambda _: NOTHING, TorchTimingOptions(**options))


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
        workload = without_arguments(lambda config: launch(*ways[config["way"]]), **options)
        run = Evaluator(workload).race(configs, RaceOptions(rounds=8, seconds=60.0, fixed=True))
        return run.ratio(1, 2)[0]

    short, long = ratio(), ratio(sample_seconds=0.12)
    assert long == pytest.approx(1.2)
    assert short < 1.1  # where the two that share follow one another, the second is fast


def tune(problem, workload, **settings):
    """The decision of a search over the whole space, and its trials."""
    session = Session(store=MemoryStore(), pool="serial", strategy="exhaustive", min_expected_gain=0.0, **settings)
    decision = session.tune(problem, Evaluator(workload))
    return decision, {trial.config: trial for trial in session.store.trials(problem.key)}


@pytest.mark.slow
def test_times_do_not_sink_from_rival_to_rival(now):
    """Where each seemingly faster one became the measure of the others, they sank to a hundredth."""
    problem = Problem(KEY, Space(Knob("step", range(1, 101))), Config(step=1))

    def later_times(seed):
        rng = np.random.default_rng(seed)

        def build(config):
            def call():
                now[0] += 1e-3 * float(np.exp(rng.normal(0, 0.25)))

            return call

        return float(np.median([trial.seconds for trial in tune(problem, without_arguments(build))[1].values()][-50:]))

    found = [later_times(seed) / 1e-3 for seed in range(4)]
    assert np.median(found) > 0.75, found
    assert min(found) > 0.5, found


def test_one_lucky_race_is_not_believed(now):
    """A candidate that is fast until its first race ends, and then as slow as the incumbent."""
    old, new = Config(step=1), Config(step=2)
    launches = {old: 0, new: 0}

    def build(config):
        def call():
            launches[config] += 1
            is_lucky = config == new and launches[new] <= LUCKY
            now[0] += 0.018 if is_lucky else 0.02

        return call

    workload = without_arguments(build)
    trial = Evaluator(workload)(TrialRequest(new, Incumbent(old, 0.02)))
    assert launches[new] > LUCKY + CONFIRMING_RACE.rounds
    assert trial.outcome.ratio >= CLEARLY_FASTER


def test_a_slow_call_that_is_much_faster_is_believed_after_few_rounds(now):
    """There is no time for the rounds that an interval takes: each was said to be 3 % faster, and no more."""
    problem = Problem(KEY, Space(Knob("hundredths", [30, 15, 5])), Config(hundredths=30))

    def build(config):
        def call():
            now[0] += config["hundredths"] / 100

        return call

    decision, trials = tune(problem, without_arguments(build))
    by_time = {config["hundredths"]: trial for config, trial in trials.items()}
    assert decision.config["hundredths"] == 5
    assert len(by_time[15].outcome.samples) < race.FIRST_TEST
    assert by_time[15].seconds / by_time[30].seconds == pytest.approx(1 / 2)
    assert by_time[5].seconds / by_time[30].seconds == pytest.approx(1 / 6)


def test_what_was_built_is_built_once_and_what_failed_is_dropped():
    built = []

    def build(config):
        built.append(config["step"])
        return {1: torch.relu, 2: torch.sin, 3: torch.relu}[config["step"]]

    def expect(values):
        return ExpectedTensors.of([torch.relu(values[0])], [torch.relu(values[0].double())])

    workload = TorchWorkload("relu", build, CallArguments((torch.randn(64, 64),)), expect, TorchTimingOptions())
    decision, trials = tune(Problem(KEY, Space(Knob("step", [1, 2, 3])), Config(step=1)), workload)
    assert sorted(built) == [1, 2, 3]
    assert decision.config["step"] in (1, 3)
    assert trials[Config(step=2)].outcome.kind == "wrong"
    assert {config["step"] for config in workload.built} == {1, 3}


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (RuntimeError("no template\n  args[0]: TensorBox(...)\n"), "refused", "RuntimeError: no template"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 7"), "memory", "can't allocate"),
        (BackendError("choose another"), "refused", "choose another"),
    ],
)
def test_a_config_that_cannot_be_built_says_why_in_a_line(error, kind, reason):
    def build(config):
        raise error

    outcome = Evaluator(without_arguments(build))(TrialRequest(Config(step=1))).outcome
    assert (outcome.stage, outcome.kind) == ("build", kind)
    assert reason in outcome.reason
    assert "\n" not in outcome.reason


def test_a_call_that_cannot_be_computed_is_no_configs_fault():
    def expect(values):
        raise RuntimeError("no kernel for this")

    workload = TorchWorkload(
        "broken", lambda _: torch.relu, CallArguments((torch.ones(3),)), expect, TorchTimingOptions()
    )
    with pytest.raises(BackendError, match="no kernel for this"):
        Evaluator(workload).prepare()
