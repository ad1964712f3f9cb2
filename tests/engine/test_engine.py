from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tunewright import Config, Knob, Session, Space, tune
from tunewright.cases.inputs import Inputs
from tunewright.engine.budget import Budget
from tunewright.engine.decide import bitwise_equal_trials, decide, select_finalists
from tunewright.errors import NothingWorked, SettingsError, StoreError
from tunewright.measure import clock, evaluator, race
from tunewright.measure.race import RaceOptions, run_race
from tunewright.model.decision import Problem
from tunewright.model.event import DecisionMade, FinalRaceStarted, SearchStarted, TrialFinished
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", [1, 2, 4, 8]))
PROBLEM = Problem(KEY, SPACE, Config(tile=1))


def timed(tile, *milliseconds):
    return Trial(Config(tile=tile), Timing(tuple(ms / 1e3 for ms in milliseconds)))


FAILED = Trial(Config(tile=8), Failure(Stage.BUILD, Kind.REFUSED, "no"))


def test_a_budget_ends_by_trials_or_by_time() -> None:
    now = [0.0]
    budget = Budget(3, 10.0, clock=lambda: now[0])
    assert budget.grant(8) == 3
    budget.spend(2)
    assert budget.grant() == 1
    now[0] = 10.0
    assert budget.grant() == 0
    assert Budget().grant(5) == 5


@pytest.mark.parametrize(
    ("text", "trials", "seconds"),
    [("200", 200, None), ("60s", None, 60), ("5m", None, 300), ("1.5h", None, 5400), ("50, 30s", 50, 30)],
)
def test_a_budget_is_read_as_people_write_it(text, trials, seconds) -> None:
    budget = Budget.parse(text)
    assert (budget.trials, budget.seconds) == (trials, seconds)


def test_a_budget_nobody_can_read_says_how_to_write_it() -> None:
    with pytest.raises(SettingsError, match="60s, 5m, 1h"):
        Budget.parse("soon")


def test_a_bad_moment_keeps_no_one_of_few_from_the_final() -> None:
    space = Space(Knob("tile", list(range(1, 9))))
    problem = Problem(KEY, space, Config(tile=8))
    few = select_finalists(problem, [timed(1, 1.0), timed(2, 1.7), timed(3, 4.0), FAILED])
    assert few == [Config(tile=1), Config(tile=2)]
    many = [timed(tile, 1 + tile / 100) for tile in range(1, 6)] + [timed(6, 1.5), timed(8, 9.0)]
    assert select_finalists(problem, many) == [Config(tile=8), *(Config(tile=tile) for tile in range(1, 6))]


def test_the_fastest_wins_with_its_evidence() -> None:
    decision = decide(PROBLEM, [timed(1, 4, 4.1, 4), timed(2, 2, 2.1, 2), timed(4, 1, 1.01, 1), FAILED])
    assert decision.config == Config(tile=4)
    evidence = decision.evidence
    assert evidence.seconds == pytest.approx(1e-3)
    assert evidence.gain == pytest.approx(4, rel=0.02)
    assert (evidence.trials, evidence.failures, evidence.ties, evidence.notes) == (4, 1, (), ())


def test_what_the_samples_cannot_tell_apart_is_a_tie_and_the_default_keeps_it() -> None:
    noisy = [timed(1, 1.0, 1.3, 1.1, 0.9), timed(2, 0.9, 1.2, 1.0, 1.05)]
    decision = decide(PROBLEM, noisy)
    assert decision.config == Config(tile=1)
    assert decision.evidence.notes == ("no gain over the default",)
    assert [tie.config for tie in decision.evidence.ties] == [Config(tile=2)]


def test_on_a_tie_the_incumbent_comes_before_the_default() -> None:
    noisy = [timed(1, 1.0, 1.3, 1.1), timed(2, 0.9, 1.2, 1.0), timed(4, 0.9, 1.25, 1.0)]
    assert decide(PROBLEM, noisy, incumbent=Config(tile=4)).config == Config(tile=4)


def test_equal_times_are_settled_by_canonical_order() -> None:
    for trials in ([timed(4, 1), timed(2, 1)], [timed(2, 1), timed(4, 1)]):
        assert decide(PROBLEM, trials).config == Config(tile=2)


def test_a_default_that_does_not_work_is_noted() -> None:
    broken = Trial(Config(tile=1), FAILED.outcome)
    assert "the default config does not work here" in decide(PROBLEM, [broken, timed(2, 1)]).evidence.notes


def test_nothing_that_worked_says_what_happened() -> None:
    with pytest.raises(NothingWorked, match="all 1 configs tried failed"):
        decide(PROBLEM, [FAILED])
    with pytest.raises(NothingWorked, match="nothing was tried"):
        decide(PROBLEM, [])


def pretend(tile, tried=None):
    if tried is not None:
        tried.append(tile)
    return sum(range(2000 * (9 - tile)))


@pytest.fixture
def now(monkeypatch):
    """Seconds by a clock that only kernels and pauses move; every timer of the host reads it."""
    passed = [0.0]

    def sleep(seconds):
        passed[0] += seconds

    def timed(timer, launches):
        began = passed[0]
        for _ in range(launches):
            timer._call()
        return passed[0] - began

    shown = SimpleNamespace(monotonic=lambda: passed[0], perf_counter=lambda: passed[0], sleep=sleep, time=lambda: 0.0)
    for module in (evaluator, race):
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(clock, "perf_counter", shown.perf_counter)
    monkeypatch.setattr(clock.HostTimer, "__call__", timed)
    return passed


def session(**options):
    return Session(store=options.pop("store", MemoryStore()), pool="serial", strategy="exhaustive", **options)


def tuned_with(own, tried):
    return tune(SPACE, session=own, default={"tile": 2})(lambda *, tile: pretend(tile, tried))


def test_the_default_is_tried_first_and_nothing_twice() -> None:
    events = []
    own = session(listeners=[events.append])
    decision = tuned_with(own, []).decide()
    configs = [event.trial.config["tile"] for event in events if isinstance(event, TrialFinished)]
    assert configs == [2, 1, 4, 8]
    assert isinstance(events[0], SearchStarted)
    assert events[0].trials == 4
    assert isinstance(events[-1], DecisionMade)
    assert decision.evidence.strategy == "exhaustive"
    assert decision.evidence.versions["tunewright"]


def test_the_budget_is_kept() -> None:
    own = session(trials=2)
    assert tuned_with(own, []).decide().evidence.trials == 2


class Stop:
    """A listener that interrupts after some trials, as Ctrl-C does."""

    def __init__(self, after):
        self.left = after

    def __call__(self, event):
        if isinstance(event, TrialFinished):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_was_found_and_goes_on_later() -> None:
    store = MemoryStore()
    first = tuned_with(session(store=store, listeners=[Stop(2)]), [])
    with pytest.raises(KeyboardInterrupt):
        first.decide()
    kept = store.get(first.problem([]).key)
    assert kept is not None
    assert kept.evidence.complete is False
    assert "the search was interrupted" in kept.evidence.notes
    later = session(store=store)
    decision = tuned_with(later, []).tune()
    assert later.counts["measurements"] == 2
    assert later.counts["replayed"] == 2
    assert decision.evidence.complete
    assert decision.evidence.trials == 4


def test_fresh_repeats_what_earlier_runs_tried() -> None:
    store = MemoryStore()
    tuned_with(session(store=store), []).decide()
    again = session(store=store)
    tuned_with(again, []).tune(fresh=True)
    assert again.counts["measurements"] == 4


def test_a_store_that_takes_no_trials_does_not_stop_the_search(caplog) -> None:
    class Full(MemoryStore):
        def record(self, key, trials):
            raise StoreError("disk full")

    tuned_with(session(store=Full()), []).decide()
    assert "a later run may repeat it" in caplog.text


def test_a_short_search_does_not_lose_a_good_earlier_decision(now) -> None:
    def kernel(*, tile):
        now[0] += 1e-4 * (9 - tile)
        return 1

    store = MemoryStore()
    whole = tune(SPACE, session=session(store=store), default={"tile": 1})(kernel).decide()
    again = tune(SPACE, session=session(store=store, trials=2), default={"tile": 1})(kernel).tune(fresh=True)
    assert whole.config == again.config == Config(tile=8)


def test_a_whole_search_is_worth_more_than_an_interrupted_one_published_meanwhile() -> None:
    store = MemoryStore()
    own = session(store=store)
    tuned = tuned_with(own, [])
    partial = decide(tuned.problem([]), [timed(2, 1)])
    partial = partial.replace(evidence=msgspec.structs.replace(partial.evidence, complete=False))
    own.listeners.append(lambda event: store.put(partial) if isinstance(event, TrialFinished) else None)
    assert tuned.decide().evidence.complete
    assert store.get(tuned.problem([]).key).evidence.complete


def test_the_gain_is_that_of_the_race() -> None:
    from tunewright.measure.race import Race, Standing

    standings = (Standing((3e-3, 3e-3), 2.0, 1.9, 2.1, 2), Standing((1e-3,) * 8, 1.0, 1.0, 1.0))
    raced = ([Config(tile=1), Config(tile=4)], Race(1, standings, 0.01, True))
    decision = decide(PROBLEM, [timed(1, 9), timed(4, 1)], None, raced)
    assert decision.evidence.gain == pytest.approx(3.0)


@pytest.mark.parametrize("launches", [1, 12])  # while the race is set up; in it
def test_a_finalist_that_fails_in_the_race_is_out_of_it(launches, caplog, now) -> None:
    own, racing = session(), []
    own.listeners.append(lambda event: racing.append(event) if isinstance(event, FinalRaceStarted) else None)

    def late(*, tile):
        if tile == 8 and racing:
            racing.append(tile)
            if len(racing) > launches:
                raise RuntimeError("illegal access")
        now[0] += {8: 4.0e-4, 4: 4.6e-4}.get(tile, 8e-4)

    decision = tune(SPACE, session=own, default={"tile": 1})(late).decide()
    assert decision.config == Config(tile=4)
    assert "tile=8 failed in the race: RuntimeError: illegal access" in caplog.text


def test_a_race_that_breaks_off_leaves_what_stood(caplog) -> None:
    class Broken:
        """An attempt whose race dies, as that of a worker does that is killed."""

        def __init__(self, bench):
            self.bench = bench

        def __call__(self, entry):
            return self.bench(entry)

        def race(self, configs, terms, kept=()):
            return None

    own = session()
    tuned = tune(SPACE, session=own, default={"tile": 2})(lambda *, tile: pretend(tile) and 1)
    decision = own.tune(tuned.problem([]), Broken(tuned.make_evaluator([Inputs()], own.settings.cache_path)))
    assert decision.config == Config(tile=2)
    assert any("was aborted" in note for note in decision.evidence.notes)
    assert "crashed or hung" in caplog.text


def raced(*factors, rounds=40, noise=0.002):
    """A race of the configs of SPACE whose times have these factors."""
    rng = np.random.default_rng(0)
    visits = [lambda f=f: 1e-3 * f * np.exp(rng.normal(0, noise)) for f in factors]
    configs = [Config(tile=tile) for tile in (1, 2, 4, 8)[: len(factors)]]
    return configs, run_race(visits, RaceOptions(rounds=rounds), protected=[0])


def test_what_is_as_good_as_the_leader_must_itself_be_faster_than_what_stood() -> None:
    trials = [timed(tile, 1) for tile in (1, 2, 4)]
    field = raced(1.0175, 1.0145, 1.0, rounds=200, noise=0.01)
    decision = decide(PROBLEM, trials, None, field)
    assert decision.config == Config(tile=4)
    assert decision.evidence.over_default.low > 1


def test_a_clear_winner_leaves_nothing_to_resolve() -> None:
    trials = [timed(tile, 1) for tile in (1, 2)]
    assert decide(PROBLEM, trials, None, raced(2.0, 1.0)).evidence.resolution is None
    assert decide(PROBLEM, trials, None, raced(1.0, 1.0)).evidence.resolution < 0.01
    assert decide(PROBLEM, trials).evidence.resolution == 1  # not raced: nothing was told


def test_half_a_search_does_not_replace_a_whole_one() -> None:
    store = MemoryStore()
    whole = tune(SPACE, session=session(store=store), default={"tile": 1})(lambda *, tile: pretend(tile) and 1)
    best = whole.decide()
    assert best.config == Config(tile=8)
    again = tune(SPACE, session=session(store=store, listeners=[Stop(1)]), default={"tile": 1})(whole.function)
    with pytest.raises(KeyboardInterrupt):
        again.tune(fresh=True)
    assert store.get(best.key) == best


def test_only_the_incumbent_and_the_default_decide_over_bits() -> None:
    def printed(tile, said):
        return msgspec.structs.replace(timed(tile, 1), fingerprint=said)

    def kept(*trials, incumbent=None):
        return {trial.config["tile"] for trial in bitwise_equal_trials(PROBLEM, trials, incumbent)}

    assert kept(printed(1, "a"), printed(2, "b"), printed(4, "a")) == {1, 4}
    assert kept(printed(1, "a"), printed(2, "b"), printed(4, "b"), incumbent=Config(tile=2)) == {2, 4}
    assert kept(printed(1, "varies"), printed(2, "b"), printed(4, "b")) == {1}
    assert kept(printed(2, "b"), printed(4, "b")) == set()


def test_a_leader_does_not_replace_what_another_published_after_the_miss() -> None:
    store = MemoryStore()
    own = session(store=store)
    tuned = tuned_with(own, [])
    rival = decide(tuned.problem([]), [timed(2, 1)])

    def late():
        store.put(rival)  # the other leader is done, and the lease is ours
        return own.tune(tuned.problem([]), tuned.attempt(tuned.cases_like([])), replace=False)

    assert own.tune_once(tuned.problem([]), late) == rival
    assert store.get(tuned.problem([]).key) == rival
    tuned.tune()
    assert len(store.history(tuned.problem([]).key)) == 2, "who asks for another search may replace it"
