"""What comes from a journal saves time, never judgement: only what was judged in this run is decided."""

import time

import numpy as np
import pytest

import tunewright as tw
from tunewright import Config, Knob, Session, Space
from tunewright.errors import NothingWorked
from tunewright.measure.race import Race, Standing, place_among, run_race
from tunewright.model.decision import Problem
from tunewright.model.event import FinalRaceStarted, TrialFinished
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", range(1, 13)))
PROBLEM = Problem(KEY, SPACE, Config(tile=1))
WRONG = Failure(Stage.VERIFY, Kind.WRONG, "its results are wrong")
TIMES = {tile: 1e-3 * (1 + abs(tile - 6)) for tile in range(1, 13)}
"""Seconds by tile; 6 is the best, 5 and 7 take twice as long, the default six times."""


class Plain:
    """An attempt without a race: configs take the seconds of `times`, those in `wrong` compute something else."""

    def __init__(self, times=TIMES, wrong=(), prints=None):
        self.times, self.wrong, self.prints = times, wrong, prints or {}
        self.requests, self.races = [], []

    @property
    def tried(self):
        return [request.config["tile"] for request in self.requests]

    def __call__(self, request):
        self.requests.append(request)
        tile = request.config["tile"]
        outcome = WRONG if tile in self.wrong else Timing((self.times[tile],) * 5)
        return Trial(request.config, outcome, at=time.time(), fingerprint=self.prints.get(tile, ""))


class Raced(Plain):
    """An attempt that judges every finalist of its race."""

    def race(self, configs, options, protected=()):
        tiles = [config["tile"] for config in configs]
        self.races.append(tiles)
        failures = {i: WRONG for i, tile in enumerate(tiles) if tile in self.wrong}
        right = [i for i in range(len(tiles)) if i not in failures]
        if not right:
            return Race(0, (Standing((), 9.0, 9.0, 9.0, 0),) * len(tiles), 0.01, False, failed=tuple(failures.items()))
        samplers = [lambda tile=tiles[i]: self.times[tile] for i in right]
        run = run_race(samplers, options, protected=[right.index(i) for i in protected if i in right])
        placed = place_among(run, right, len(tiles))
        return Race(placed.leader, placed.standings, placed.margin, placed.settled, failed=tuple(failures.items()))


class Aborted(Plain):
    """An attempt whose race dies."""

    def race(self, configs, options, protected=()):
        self.races.append([config["tile"] for config in configs])


class Hasty(Raced):
    """An attempt whose race ends after one round."""

    def race(self, configs, options, protected=()):
        self.races.append([config["tile"] for config in configs])
        standings = (Standing((self.times[config["tile"]],), 1.0, 0.1, 9.0) for config in configs)
        return Race(0, tuple(standings), 0.01, False)


def stored(*trials):
    store = MemoryStore()
    store.record(KEY, trials)
    return store


def trial(tile, seconds=None, **fields):
    return Trial(Config(tile=tile), Timing((seconds or TIMES[tile],) * 5), at=time.time(), **fields)


def session(store, **options):
    return Session(store=store, pool="serial", strategy="exhaustive", **options)


EVERY_TRIAL = [trial(tile) for tile in TIMES]


def test_a_trial_says_who_made_it() -> None:
    store = MemoryStore()
    for _ in range(2):
        session(store, trials=3).tune(PROBLEM, Raced(), fresh=True)
    makers = {trial.by for trial in store.trials(KEY)}
    assert all(len(maker.split(":")) == 3 for maker in makers)


@pytest.mark.parametrize("attempt", [Plain, Raced])
def test_a_forged_trial_of_a_wrong_config_decides_nothing(attempt) -> None:
    store = stored(trial(9, 1e-6))
    attempt = attempt(wrong=[9])
    decision = session(store).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=6)
    assert decision.evidence.gain == pytest.approx(6)
    assert [t.outcome for t in store.trials(KEY) if t.config["tile"] == 9][1:] == [WRONG]
    again = attempt.__class__(wrong=[9])
    session(store).tune(PROBLEM, again)
    assert all(9 not in tiles for tiles in [again.tried, *again.races])


def test_a_forged_trial_of_a_kernel_that_computes_nothing_decides_nothing() -> None:
    @tw.tune(
        Space(Knob("method", ["exact", "slow", "skip"])),
        reference=lambda a, out: np.copyto(out, 2 * a),
        default={"method": "slow"},
        session=session(MemoryStore()),
    )
    def twice(a: tw.In("N"), out: tw.Out("N"), *, method):
        for _ in range({"exact": 1, "slow": 20, "skip": 0}[method]):
            np.multiply(a, 2, out=out)

    a, out = np.ones(20000, np.float32), np.zeros(20000, np.float32)
    key = twice.problem((a, out)).key
    store = twice.session.store
    store.record(key, [Trial(Config(method="skip"), Timing((1e-6,) * 5), at=time.time())])
    twice(a, out)
    assert store.get(key).config == Config(method="exact")
    assert store.get(key).evidence.seconds > 1e-6
    assert (out == 2).all()
    assert list(store.trials(key))[-1].outcome.kind is Kind.WRONG


def test_however_many_are_forged_the_honest_best_of_this_run_wins() -> None:
    forged = {9: 1e-8, 10: 1e-7, 11: 1e-6, 12: 1e-5, 4: 1e-4}
    attempt = Raced(wrong=forged)
    decision = session(stored(*(trial(*pair) for pair in forged.items()))).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=6)
    assert len(attempt.races) == 3


def test_a_forged_time_of_a_right_config_does_not_hide_the_others() -> None:
    attempt = Raced()
    decision = session(stored(*EVERY_TRIAL, trial(12, 1e-6))).tune(PROBLEM, attempt)
    assert attempt.tried == []
    assert decision.config == Config(tile=6)
    assert decision.evidence.seconds == pytest.approx(1e-3)
    assert len(attempt.races) == 2


def test_what_is_resumed_without_a_budget_is_raced_once_and_not_tried() -> None:
    own, attempt = session(stored(*EVERY_TRIAL)), Raced()
    assert own.tune(PROBLEM, attempt).config == Config(tile=6)
    assert (attempt.tried, len(attempt.races)) == ([], 1)
    assert (own.counts["replayed"], own.counts["measurements"]) == (12, 0)


@pytest.mark.parametrize(("others", "races"), [(9e-3, [[1, 6, 5]]), (2e-3, [[1, 6, 5, 2], [1, 5, 2, 3]])])
def test_when_one_fails_in_the_race_there_is_another_only_for_new_finalists(others, races) -> None:
    attempt = Raced(times={**dict.fromkeys(TIMES, others), 6: 1e-3, 5: 1.1e-3})
    own = session(MemoryStore())

    def turn(event):
        if isinstance(event, FinalRaceStarted):
            attempt.wrong = [6]

    own.listeners.append(turn)
    decision = own.tune(PROBLEM, attempt)
    assert decision.config == Config(tile=5)
    assert attempt.races == races
    assert [t.outcome for t in own.store.trials(KEY) if t.config["tile"] == 6][-1] == WRONG


def test_nothing_works_if_all_fail_in_the_race() -> None:
    attempt = Raced(wrong=TIMES)
    store = stored(*EVERY_TRIAL)
    with pytest.raises(NothingWorked):
        session(store).tune(PROBLEM, attempt)
    assert store.get(KEY) is None


@pytest.mark.parametrize("wrong", [(), (6,)])
def test_the_only_finalist_of_an_earlier_run_is_judged(wrong) -> None:
    refused = [Trial(Config(tile=tile), Failure(Stage.BUILD, Kind.REFUSED, "no")) for tile in TIMES if tile != 6]
    own, attempt = session(stored(trial(6), *refused)), Raced(wrong=wrong)
    if wrong:
        with pytest.raises(NothingWorked):
            own.tune(PROBLEM, attempt)
    else:
        decision = own.tune(PROBLEM, attempt)
        assert decision.config == Config(tile=6)
        assert "the default config does not work here" in decision.evidence.notes
    assert attempt.races == [[6]]
    assert attempt.tried == []


def test_the_only_finalist_of_this_run_needs_no_race() -> None:
    attempt = Raced(wrong=[tile for tile in TIMES if tile != 6])
    assert session(MemoryStore()).tune(PROBLEM, attempt).config == Config(tile=6)
    assert attempt.races == []


def test_after_a_race_that_died_the_default_is_kept_once_it_was_judged() -> None:
    attempt = Aborted()
    decision = session(stored(*EVERY_TRIAL)).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=1)
    assert attempt.tried == [1]
    assert any("was aborted" in note for note in decision.evidence.notes)


def test_after_a_race_that_died_without_a_default_what_was_tried_here_decides() -> None:
    attempt = Aborted(wrong=[1, 6])
    decision = session(stored(trial(1), trial(6, 1e-6), trial(5, 1e-5))).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=7), "neither the forged one nor one that was not judged here"


def test_after_a_race_that_was_too_short_no_forged_time_decides() -> None:
    attempt = Hasty()
    decision = session(stored(*EVERY_TRIAL, trial(12, 1e-6))).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=6)
    assert decision.evidence.seconds == pytest.approx(1e-3)


def test_without_a_race_the_best_of_earlier_runs_are_tried_again() -> None:
    attempt = Plain()
    decision = session(stored(*EVERY_TRIAL)).tune(PROBLEM, attempt)
    assert decision.config == Config(tile=6)
    assert decision.evidence.gain == pytest.approx(6)
    assert sorted(attempt.tried) == [1, 4, 5, 6, 7]  # the default and the fastest few


def test_the_incumbent_of_new_trials_was_tried_in_this_run() -> None:
    attempt = Raced()
    session(stored(trial(9, 1e-6), trial(6))).tune(PROBLEM, attempt)
    incumbents = [request.incumbent and request.incumbent.config["tile"] for request in attempt.requests]
    assert incumbents[0] is None
    assert set(incumbents[1:]) <= set(attempt.tried)


def test_equality_bit_for_bit_is_judged_here_too() -> None:
    prints = {tile: "other" if tile in (6, 9) else "same" for tile in TIMES}
    forged = [trial(tile, 1e-5 if tile == 9 else None, fingerprint="same") for tile in TIMES]
    attempt = Raced(prints=prints)
    decision = session(stored(*forged), deterministic=True).tune(PROBLEM, attempt)
    assert decision.config["tile"] in (5, 7)
    assert decision.evidence.fingerprint == "same"


class Stop:
    """A listener that interrupts after some trials of this run."""

    def __init__(self, after):
        self.left = after

    def __call__(self, event):
        if isinstance(event, TrialFinished) and not event.replayed:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def test_an_interrupted_run_decides_by_its_own_trials() -> None:
    store = stored(trial(9, 1e-6))
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(4)]).tune(PROBLEM, Raced(wrong=[9]))
    assert store.get(KEY).config == Config(tile=4)
    assert "the default config does not work here" not in store.get(KEY).evidence.notes


def test_an_interrupted_run_of_which_nothing_worked_publishes_nothing() -> None:
    store = stored(trial(9, 1e-6))
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(2)]).tune(PROBLEM, Raced(wrong=[1, 2, 9]))
    assert store.get(KEY) is None


def test_an_interrupted_run_does_not_replace_what_it_was_not_compared_with() -> None:
    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(6)]).tune(PROBLEM, Raced())
    assert store.get(KEY).config == Config(tile=6)
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(2)]).tune(PROBLEM, Raced())
    assert store.get(KEY).config == Config(tile=6)


def test_what_an_interrupted_run_decided_gives_way_to_the_default_on_a_tie() -> None:
    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(3)]).tune(PROBLEM, Raced(times=TIMES | {2: 1e-4}))
    assert store.get(KEY).config == Config(tile=2)
    later = session(store, trials=3).tune(PROBLEM, Raced(times=dict.fromkeys(TIMES, 6e-3)))
    assert later.config == Config(tile=1)
    assert "no gain over the default" in later.evidence.notes


def test_what_a_complete_run_decided_stays_on_a_tie() -> None:
    store = MemoryStore()
    session(store).tune(PROBLEM, Raced())
    assert session(store, trials=3).tune(PROBLEM, Raced(times=dict.fromkeys(TIMES, 6e-3))).config == Config(tile=6)


def test_an_interrupted_run_chooses_nothing_that_is_only_a_little_faster() -> None:
    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        session(store, listeners=[Stop(2)]).tune(PROBLEM, Raced(times=TIMES | {2: 0.95 * TIMES[1]}))
    assert store.get(KEY).config == Config(tile=1)


@pytest.mark.parametrize("kind", [Kind.MEMORY, Kind.HUNG, Kind.BUSY])
def test_a_transient_failure_is_tried_again_once(kind) -> None:
    failed = Trial(Config(tile=6), Failure(Stage.TIME, kind, "the machine was full"))
    others = [trial(tile) for tile in TIMES if tile != 6]
    attempt = Raced()
    own = session(stored(*others, failed), trials=12)
    assert own.tune(PROBLEM, attempt).config == Config(tile=6)
    assert (attempt.tried, own.counts["replayed"]) == ([6], 11)
    attempt = Raced()
    assert session(stored(*others, failed, failed), trials=12).tune(PROBLEM, attempt).config == Config(tile=5)
    assert attempt.tried == []


def test_what_failed_for_the_moment_is_tried_again_before_anything_new() -> None:
    failed = Trial(Config(tile=6), Failure(Stage.TIME, Kind.HUNG, "the machine was full"))
    attempt = Raced()
    session(stored(trial(1), trial(2), failed), trials=3).tune(PROBLEM, attempt)
    assert attempt.tried == [6]


def test_a_lasting_failure_is_not_tried_again() -> None:
    failed = [Trial(Config(tile=6), Failure(Stage.TIME, kind, "")) for kind in (Kind.HUNG, Kind.WRONG)]
    attempt = Raced()
    session(stored(trial(5), *failed)).tune(PROBLEM, attempt)
    assert 6 not in attempt.tried


def test_within_a_search_nothing_is_tried_twice() -> None:
    class Full(Raced):
        def __call__(self, request):
            tried = super().__call__(request)
            full = Trial(request.config, Failure(Stage.TIME, Kind.MEMORY, "full"))
            return full if request.config["tile"] % 2 else tried

    attempt = Full()
    session(MemoryStore()).tune(PROBLEM, attempt)
    assert sorted(attempt.tried) == sorted(TIMES)
