"""The first launch of a config may contain a compilation: how long a launch takes is known from the second."""

from math import inf

from tunewright import Knob, Space
from tunewright.engine.budget import Budget
from tunewright.engine.decide import decide
from tunewright.engine.journal import remembered
from tunewright.measure.case_check import CaseCheck
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Problem
from tunewright.model.trial import Allowance, Timing, Trial, TrialRequest
from tunewright.spaces.config import Config
from tunewright.testing.keys import KEY


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
    def was_launched_once(self):
        return self.launches < 2

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
        self.later, self.now, self.allowed, self.may_compile = later, 0.0, [], True

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
    assert workload.allowed == [20 / 3, inf]


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


def _try_one(monkeypatch, *, most, later=0.01, may_compile=True, **fields):
    workload = Workload(later)
    workload.may_compile = may_compile
    monkeypatch.setattr("tunewright.measure.evaluator.time.perf_counter", lambda: workload.now)
    evaluator = Evaluator(workload)
    allowance = Allowance(0.5, most, fields.pop("compiles_late", None))
    return evaluator, evaluator(TrialRequest(Config(block=1), allowance=allowance, **fields))


def test_what_is_left_of_a_budget_may_be_spent_on_the_second_launch_of_the_default(monkeypatch) -> None:
    _, trial = _try_one(monkeypatch, most=5.0, essential=True)
    assert trial.outcome.seconds == 0.01
    assert not trial.outcome.is_first
    assert trial.metrics == {"compiles_late": 1.0}


def test_other_workers_are_told_that_configs_compile_at_their_first_launch(monkeypatch) -> None:
    _, trial = _try_one(monkeypatch, most=3.0, compiles_late=True)
    assert trial.outcome.seconds == 0.01
    budget = Budget(seconds=10.0)
    assert budget.allowance().compiles_late is None
    budget.learn(trial)
    assert budget.allowance().compiles_late is True


def test_one_launch_shows_nothing_about_compilations_and_is_marked(monkeypatch) -> None:
    evaluator, trial = _try_one(monkeypatch, most=3.0, essential=True)
    assert (trial.outcome.seconds, trial.outcome.is_first, trial.metrics) == (2.0, True, {})
    later = evaluator(TrialRequest(Config(block=2), allowance=Allowance(0.5, 20.0)))
    assert (later.outcome.seconds, later.outcome.is_first) == (0.01, False)


def test_what_is_compiled_before_its_first_launch_is_not_marked(monkeypatch) -> None:
    _, trial = _try_one(monkeypatch, most=3.0, may_compile=False, later=2.0)
    assert (trial.outcome.seconds, trial.outcome.is_first) == (2.0, False)


def decided(*outcomes):
    trials = [Trial(Config(block=number), outcome) for number, outcome in enumerate(outcomes)]
    problem = Problem(KEY, Space(Knob("block", range(len(trials)))), Config(block=0))
    return decide(problem, trials)


def test_no_gain_is_stated_over_a_default_that_may_have_been_compiled() -> None:
    first, measured = Timing((4.0,), "wall", is_first=True), Timing((0.01,) * 5, "wall")
    decision = decided(first, measured)
    assert decision.config == Config(block=0)
    assert decision.evidence.gain in (None, 1.0)
    assert any("first launch" in note for note in decision.evidence.notes)
    assert decided(Timing((4.0,) * 5, "wall"), measured).config == Config(block=1)


def test_no_gain_is_stated_between_two_clocks() -> None:
    by_cpu, by_wall = Timing((0.02,) * 5, "thread"), Timing((0.01,) * 5, "wall")
    assert decided(by_cpu, by_wall).evidence.gain is None
    assert decided(by_wall, Timing((0.005,) * 5, "wall")).evidence.gain == 2
    raced = Timing((0.01,) * 5, "wall", ratio=0.5, incumbent_seconds=0.02)
    assert decided(by_cpu, raced).evidence.gain == 2


def test_a_time_that_may_contain_a_compilation_is_measured_again_by_the_next_search() -> None:
    first = Trial(Config(block=1), Timing((4.0,), "wall", is_first=True))
    measured = Trial(Config(block=2), Timing((4.0,), "wall"))
    last, again = remembered([first, measured])
    assert (list(last), again) == ([Config(block=2)], [Config(block=1)])
