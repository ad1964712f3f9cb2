"""The first launch of a config may contain a compilation: how long a launch takes is known from the second."""

from math import inf

from tunewright.measure.case_check import CaseCheck
from tunewright.measure.evaluator import Evaluator
from tunewright.model.trial import Allowance, Timing, TrialRequest
from tunewright.spaces.config import Config


class Check(CaseCheck):
    """A case whose launches take the given seconds; results are always right."""

    def __init__(self, *seconds):
        self._left = list(seconds)

    def _timed_run(self):
        return {}, self._left.pop(0)

    def problem(self, place, draw, results):
        return None


def test_a_launch_takes_as_long_as_the_shorter_of_two() -> None:
    check = Check(0.5, 0.001)
    assert check.verify(2.0)[0] is None
    assert check.launch_seconds == 0.001


def test_there_is_no_second_launch_if_there_is_no_time_for_it() -> None:
    check = Check(1.5)
    assert check.verify(2.0)[0] is None
    assert check.launch_seconds == 1.5


class Timer:
    clock = "wall"


class Candidate:
    """Launches take 2 seconds at first and `later` seconds from then on, on a clock of their own."""

    def __init__(self, workload):
        self._workload, self.launches, self.timers = workload, 0, [Timer()]
        self.launch_seconds, self.hurried = 0.0, False

    def _launch(self):
        self.launches += 1
        seconds = self._workload.later if self.launches > 1 else 2.0
        self._workload.now += seconds
        return seconds

    @property
    def first_sample(self):
        return self.launch_seconds, "wall"

    def verify(self, seconds=inf):
        self._workload.allowed.append(seconds)
        self.launch_seconds = self._launch()
        if 2 * self.launch_seconds <= seconds:
            self.launch_seconds = min(self.launch_seconds, self._launch())
        return None, ""

    def hurry(self):
        self.hurried = True

    def sample(self, draw, *, audited):
        return self._launch()

    def check(self, draw, *, launches):
        return None


class Workload:
    name, lock, oracle_seconds = "late", None, 0.0

    def __init__(self, later):
        self.later, self.now, self.allowed = later, 0.0, []

    def prepare(self):
        pass

    def renew(self):
        pass

    def build(self, config):
        return config

    def load(self, config, artifact):
        return Candidate(self)


def _try_two_configs(monkeypatch, later, most=20.0):
    workload = Workload(later)
    monkeypatch.setattr("tunewright.measure.evaluator.time.perf_counter", lambda: workload.now)
    evaluator = Evaluator(workload)
    requests = [TrialRequest(Config(block=block), allowance=Allowance(1.0, most)) for block in (1, 2)]
    outcomes = [evaluator(request).outcome for request in requests]
    assert all(isinstance(outcome, Timing) for outcome in outcomes), outcomes
    return workload, [outcome.seconds for outcome in outcomes]


def test_a_compilation_longer_than_a_trial_does_not_decide(monkeypatch) -> None:
    workload, seconds = _try_two_configs(monkeypatch, later=0.01)
    assert seconds == [0.01, 0.01]
    assert workload.allowed == [20 / 3, 20 / 3]


def test_a_slow_kernel_after_a_late_compilation_is_timed_apart_from_it(monkeypatch) -> None:
    _, seconds = _try_two_configs(monkeypatch, later=0.3)
    assert seconds == [0.3, 0.3]


def test_a_kernel_that_is_slow_by_itself_pays_for_a_second_launch_once(monkeypatch) -> None:
    workload, seconds = _try_two_configs(monkeypatch, later=2.0)
    assert seconds == [2.0, 2.0]
    assert workload.allowed == [20 / 3, 1.0]
    assert workload.now == 6.0


def test_the_second_launch_is_left_out_at_the_end_of_a_budget(monkeypatch) -> None:
    workload, seconds = _try_two_configs(monkeypatch, later=0.01, most=5.0)
    assert seconds == [2.0, 2.0]
    assert workload.now == 4.0
