"""A budget in seconds bounds everything: trials, verification and the final race, whatever the kernel's length."""

import time

import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.host import cpu
from tunewright.engine.budget import FINAL_SHARE, Budget
from tunewright.engine.journal import Journal
from tunewright.engine.search_loop import Search, search
from tunewright.engine.stopping import StoppingRule
from tunewright.model.decision import Problem
from tunewright.model.event import TrialFinished
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.strategies.random import RandomSearch


class Hours:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def trial(seconds, cost):
    return Trial(Config(a=1), Timing((seconds,)), run_seconds=cost)


def learn_twice(budget, tried):
    budget.learn(tried)
    budget.learn(tried)


def test_no_trial_starts_that_would_take_the_time_of_the_final_race() -> None:
    clock = Hours()
    budget = Budget(seconds=40.0, clock=clock)
    assert budget.grant() == 1
    learn_twice(budget, trial(1e-3, 2.0))
    clock.now += 40 * (1 - FINAL_SHARE) - 2.1
    assert budget.grant() == 1
    clock.now += 0.2
    assert budget.grant() == 0
    assert budget.grant(essential=True) == 1


def test_the_time_of_a_final_race_is_not_kept_while_there_is_nothing_to_race() -> None:
    """A default that took long to build, as the first graph of a process does, must not end the search alone."""
    clock = Hours()
    budget = Budget(seconds=120.0, clock=clock)
    budget.learn(Trial(Config(a=1), Timing((0.1,)), build_seconds=53.0, run_seconds=2.0))
    clock.now += 56
    assert budget.grant() == 1
    budget.learn(trial(0.1, 20.0))
    clock.now += 20
    assert budget.grant() == 0  # what is left is for the race of these two
    other = Budget(seconds=120.0, clock=clock)
    other.learn(Trial(Config(a=1), Timing((0.1,)), build_seconds=60.0, run_seconds=2.0))
    clock.now += 63
    assert other.grant() == 0  # as long again would take more than is left


def test_what_needs_no_build_is_tried_when_there_is_no_time_to_build() -> None:
    clock = Hours()
    budget = Budget(seconds=90.0, clock=clock)
    learn_twice(budget, Trial(Config(a=1), Timing((0.05,)), build_seconds=30.0, run_seconds=2.0))
    clock.now += 50
    assert budget.grant() == 0
    assert budget.grant(ready=True) == 1
    budget.learn(trial(0.05, 2.0), ready=True)  # it was cheap, and what is built is not cheaper for it
    assert budget.grant() == 0
    clock.now += 20
    assert budget.grant(ready=True) == 0


def test_a_ready_seed_is_tried_after_a_long_build() -> None:
    """What needs no build comes first, and after it nothing that the budget has no time for."""
    clock, asked = Hours(), []
    config = {number: Config(a=number) for number in (1, 2, 3)}
    space = tw.Space(tw.Knob("a", [1, 2, 3]))
    problem = Problem(
        Key("k", "source", Signature(()), cpu()), space, config[1], seeds=(config[2],), ready=(config[2],)
    )
    budget = Budget(seconds=90.0, clock=clock)
    strategy = RandomSearch(space, np.random.default_rng(0))
    journal = Journal(MemoryStore(), problem, lambda event: None)
    plan = Search(problem, strategy, budget, StoppingRule(strategy, 0.0), journal)

    class Serial:
        def run(self, attempt, requests):
            for request in requests:
                asked.append(request.config)
                build = 0.0 if request.config == config[2] else 30.0
                clock.now += build + 20
                yield Trial(request.config, Timing((0.05,)), build_seconds=build, run_seconds=2.0)

    search(plan, None, Serial())
    assert asked == [config[1], config[2]]


def test_a_search_inside_a_trial_leaves_time_for_it_and_for_the_final_race() -> None:
    clock = Hours()
    budget = Budget(seconds=90.0, clock=clock)
    budget.learn(Trial(Config(a=1), Timing((0.05,)), build_seconds=15.0, run_seconds=2.0))
    clock.now += 20
    assert budget.left_for_part() == 90 - 20 - 90 * FINAL_SHARE - 17


def test_slow_kernels_keep_more_for_the_final_race_unless_there_can_be_none() -> None:
    clock = Hours()
    budget = Budget(seconds=40.0, clock=clock)
    learn_twice(budget, trial(0.5, 0.5))
    clock.now += 27
    assert budget.grant() == 0  # half a second, two dozen times
    hopeless = Budget(seconds=40.0, clock=clock)
    hopeless.learn(trial(5.0, 5.0))
    clock.now += 34
    assert hopeless.grant() == 1


def test_a_trial_has_its_share_of_the_budget_and_no_more_than_is_left() -> None:
    clock = Hours()
    budget = Budget(seconds=40.0, clock=clock)
    clock.now += 39.5
    assert budget.allowance().usual == 2.0
    assert budget.allowance().most == 0.5
    clock.now += 5
    assert budget.allowance().most == 0
    assert Budget(trials=3).allowance() is None
    assert Budget(trials=0).grant(essential=True) == 0


def sleeper(seconds, budget, **options):
    session = tw.Session(store="memory:", min_expected_gain=0.0, run_seconds=options.pop("run_seconds", 60.0))

    @tw.tune(tw.Space(tw.Knob("way", list(range(9)))), budget=budget, session=session, **options)
    def kernel(a: tw.In("N"), *, way=0):
        time.sleep(seconds * (0.25 if way == 5 else 1))
        return a * 2

    return kernel


def timed(kernel):
    began = time.perf_counter()
    decision = kernel.decide(np.ones(4))
    return decision, time.perf_counter() - began


@pytest.mark.clock("what is tested is how long a call takes")
@pytest.mark.parametrize(("seconds", "budget"), [(0.001, 4), (0.1, 4), (1.0, 5)])
def test_a_budget_is_kept(seconds, budget) -> None:
    decision, elapsed = timed(sleeper(seconds, f"{budget}s"))
    assert elapsed - seconds < 1.1 * budget
    assert decision.evidence.failures == 0


def test_what_one_run_shows_is_said_with_a_wide_interval() -> None:
    decision, _ = timed(sleeper(0.7, "2s"))
    evidence = decision.evidence
    assert decision.config["way"] == 0
    assert (evidence.low, evidence.high) == pytest.approx((evidence.seconds / 1.5, evidence.seconds * 1.5))
    assert any("left no time to race finalists" in note for note in evidence.notes) or evidence.trials == 1


@pytest.mark.clock("what is tested is what nine seconds are enough for")
def test_what_is_far_faster_is_chosen_even_if_there_is_no_time_for_a_race() -> None:
    decision, _ = timed(sleeper(0.6, "9s"))
    assert decision.config["way"] == 5
    assert decision.evidence.over_default.low > 1


@pytest.mark.slow
def test_deadlines_are_those_of_one_run() -> None:
    decision, _ = timed(sleeper(0.3, "7s", run_seconds=1.5))  # all runs of a config together take longer
    assert decision.evidence.failures == 0


@pytest.mark.slow
def test_a_slow_kernel_that_remembers_results_is_not_chosen_for_it() -> None:
    session = tw.Session(store="memory:", min_expected_gain=0.0)
    kept = {}

    @tw.tune(tw.Space(tw.Knob("remembers", [False, True])), budget="6s", session=session, reference=lambda a: a * 2)
    def kernel(a: tw.In("N"), *, remembers=False):
        if not (remembers and (kept.get("a") == a.tobytes() or a.tobytes() in kept)):
            time.sleep(0.2)
        kept[a.tobytes()] = True
        return a * 2

    decision, _ = timed(kernel)
    assert not decision.config["remembers"]


@pytest.mark.parametrize("wrong_after", [1, 2, 4])
def test_a_slow_kernel_that_computes_only_at_first_is_not_chosen(wrong_after) -> None:
    session = tw.Session(store="memory:", min_expected_gain=0.0)
    calls = []

    @tw.tune(tw.Space(tw.Knob("lazy", [False, True])), budget="6s", session=session, reference=lambda a: a * 2)
    def kernel(a: tw.In("N"), *, lazy=False):
        calls.append(lazy)
        if lazy and calls.count(True) > wrong_after:
            return a * 0
        time.sleep(0.2)
        return a * 2

    decision, _ = timed(kernel)
    assert not decision.config["lazy"]


def stopped(seconds, stage=Stage.TIME):
    return Trial(Config(a=2), Failure(stage, Kind.STOPPED, ""), run_seconds=seconds)


def test_a_trial_that_the_budget_ends_is_no_failure_unless_it_took_far_too_long() -> None:
    budget = Budget(seconds=40.0, clock=Hours())
    assert not budget.is_hung(stopped(39.0))  # it is the first
    budget.learn(trial(1e-3, 2.0))
    assert budget.is_hung(stopped(11.0))
    assert not budget.is_hung(stopped(9.0))
    assert not budget.is_hung(stopped(11.0, Stage.WAIT))
    budget.learn(trial(1e-3, 4.0))
    assert not budget.is_hung(stopped(11.0))


def test_a_trial_is_ended_before_it_takes_the_time_of_the_final_race() -> None:
    clock = Hours()
    budget = Budget(seconds=40.0, clock=clock)
    assert budget.allowance().most == 40.0  # without a config that works there is no race
    learn_twice(budget, trial(1e-3, 2.0))
    clock.now += 10
    assert budget.allowance().most == 20.0
    assert budget.allowance(final=True).most == 30.0


def test_the_fewest_rounds_of_a_final_are_kept_where_more_would_take_half() -> None:
    budget = Budget(seconds=30.0, clock=Hours())
    learn_twice(budget, trial(0.9, 1.8))
    assert 1 + 14 * 0.9 <= 30 - budget.allowance().most <= 15


def test_a_final_is_given_the_time_that_a_worker_takes_to_start_here() -> None:
    clock = Hours()
    budget = Budget(seconds=30.0, clock=clock)
    clock.now += 6
    budget.learn(trial(0.1, 2.0))
    assert budget.start_seconds == 4
    clock.now += 1
    budget.learn(trial(0.1, 0.5))
    assert budget.start_seconds == 4


@pytest.mark.slow
@pytest.mark.clock("a config must run for a quarter of the budget")
def test_a_config_that_runs_until_the_budget_ends_is_recorded_and_said_and_skipped(caplog) -> None:
    session, runs = tw.Session(store="memory:", min_expected_gain=0.0), []

    @tw.tune(tw.Space(tw.Knob("way", [0, 1])), budget="12s", session=session, reference=lambda a: a * 2)
    def kernel(a: tw.In("N"), *, way=0):
        time.sleep(60 * way)
        return a * 2

    decision, elapsed = timed(kernel)
    assert decision.config["way"] == 0
    assert elapsed < 20
    assert decision.evidence.failures == 1
    hung = [trial.outcome for trial in session.store.trials(decision.key) if not trial.works]
    assert [failure.kind for failure in hung] == [Kind.HUNG]
    assert "until the budget ended it" in hung[0].reason
    assert "way=1 hung" in caplog.text
    session.listeners.append(runs.append)
    kernel.tune(np.ones(4))
    assert not [run for run in runs if isinstance(run, TrialFinished) and not run.replayed and not run.trial.works]
