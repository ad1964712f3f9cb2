import json

import msgspec
import numpy as np
import pytest

from tunewright import Config, Knob, Session, Space, tune
from tunewright.engine.stopping import CHECK_EVERY, MIN_TRIALS, StoppingRule
from tunewright.errors import SpaceError
from tunewright.kernel.seeds import load_seeds
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Timing, Trial
from tunewright.ports.strategy import Forecast
from tunewright.stores.memory import MemoryStore
from tunewright.stores.prior import Related, collect_prior, describe_seed_benefit
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", range(1, 41)))
PROBLEM = Problem(KEY, SPACE, Config(tile=1))


def timed(tile, milliseconds):
    return Trial(Config(tile=tile), Timing((milliseconds / 1e3,)))


def other(**fields):
    return msgspec.structs.replace(KEY, **fields)


def test_the_nearest_journals_are_the_prior_and_their_choices_the_seeds() -> None:
    store = MemoryStore()
    near, far = other(toolchain={"gcc": "99"}), other(toolchain={"gcc": "99"}, mode={"regime": "cold"}, source="x")
    for key, best in ((far, 7), (near, 5)):
        store.record(key, [timed(tile, 1 + abs(tile - best)) for tile in range(1, 20)])
        store.put(Decision(key, Config(tile=best)))
    store.record(other(kernel="another"), [timed(tile, 1) for tile in range(1, 20)])
    prior, other_source, seeds = collect_prior(store, PROBLEM)
    assert [len(source.trials) for source in prior.sources] == [19, 19]
    assert "toolchain" in prior.sources[0].name
    assert (other_source, seeds) == ((), (Config(tile=5), Config(tile=7)))


def test_a_journal_of_a_few_trials_or_of_other_knobs_is_no_source() -> None:
    store = MemoryStore()
    store.record(other(source="a"), [timed(tile, 1) for tile in (1, 2)])
    store.record(other(source="b"), [Trial(Config(unroll=i), Timing((1.0,))) for i in range(20)])
    store.put(Decision(other(source="b"), Config(unroll=3)))
    prior, other_source, seeds = collect_prior(store, PROBLEM)
    assert not prior.sources
    assert not other_source
    assert not seeds


def test_what_was_chosen_for_another_source_alone_is_told_apart() -> None:
    store = MemoryStore()
    store.record(other(source="edited"), [timed(9, 1)])
    store.put(Decision(other(source="edited"), Config(tile=9)))
    store.record(other(toolchain={"gcc": "99"}), [timed(5, 1)])
    store.put(Decision(other(toolchain={"gcc": "99"}), Config(tile=5)))
    assert collect_prior(store, PROBLEM)[1:] == ((Config(tile=9),), (Config(tile=5),))


def test_of_other_sources_the_nearest_alone_comes_before_the_seeds() -> None:
    nearest, farther, near, seed = (Config(tile=tile) for tile in (9, 8, 5, 1))
    related = Related(other_source=(nearest, farther), near=(near,))
    assert related.order_seeds([seed]) == (nearest, seed, farther, near)
    assert Related(near=(near,)).order_seeds([seed]) == (seed, near)


def test_what_seeds_saved_is_told() -> None:
    seeds = [Config(tile=9)]
    trials = [timed(1, 5), timed(9, 2), timed(3, 4), timed(4, 1.5)]
    assert "after 3 trials of its own" in describe_seed_benefit(seeds, trials)
    assert "no config of the search was as fast" in describe_seed_benefit(seeds, trials[:3])
    assert describe_seed_benefit([], trials) is None
    assert describe_seed_benefit([Config(tile=30)], trials) is None


class Seer:
    def __init__(self, gains):
        self.gains = gains

    def ask(self, count):
        return []

    def tell(self, trials):
        pass

    def forecast(self):
        return Forecast(self.gains.pop(0), 0.01)


def test_a_search_stops_when_as_much_again_gains_too_little() -> None:
    stopping = StoppingRule(Seer([0.001, 0.0001]), 0.01)
    assert not stopping.should_stop(MIN_TRIALS - 1)
    assert not stopping.should_stop(MIN_TRIALS)  # 30 x 0.001 is more than a hundredth
    assert not stopping.should_stop(MIN_TRIALS + 1)  # it looks ahead now and then only
    assert stopping.should_stop(MIN_TRIALS + CHECK_EVERY)
    assert stopping.forecast.gain == 0.0001


def test_a_worth_of_nothing_never_stops_a_search() -> None:
    assert not StoppingRule(Seer([]), 0.0).should_stop(10_000)


def kernel(session, **said):
    @tune(SPACE, session=session, default={"tile": 1}, **said)
    def work(*, tile):
        sum(range(200 * (abs(tile - 20) + 1)))

    return work


def test_seeds_are_tried_first_and_reported() -> None:
    own = Session(store=MemoryStore(), pool="serial", trials=6, strategy="random")
    decision = kernel(own, seeds=[{"tile": 20}, {"tile": 77}, {"tile": 21}]).decide()
    tried = [trial.config["tile"] for trial in own.store.trials(decision.key)]
    assert tried[:3] == [1, 20, 21]
    assert any("seeds" in note for note in decision.evidence.notes)


def test_what_was_chosen_before_the_source_changed_is_tried_before_seeds() -> None:
    key = kernel(Session(store=MemoryStore(), pool="serial", trials=1)).decide().key
    edited = Session(store=MemoryStore(), pool="serial", trials=4, strategy="random")
    for old, best in (({"source": "before"}, 9), ({"toolchain": {"gcc": "99"}}, 5)):
        edited.store.record(msgspec.structs.replace(key, **old), [timed(best, 1)])
        edited.store.put(Decision(msgspec.structs.replace(key, **old), Config(tile=best)))
    decision = kernel(edited, seeds=[{"tile": 20}]).decide()
    assert [trial.config["tile"] for trial in edited.store.trials(decision.key)][:4] == [1, 9, 20, 5]


def test_seeds_come_from_lists_files_and_functions(tmp_path) -> None:
    path = tmp_path / "proposals.json"
    path.write_text(json.dumps([{"tile": 3}, {"tile": 3}, {"tile": "many"}]))
    assert load_seeds(str(path), SPACE, {}) == (Config(tile=3),)
    assert load_seeds(lambda n: {"tile": n // 100}, SPACE, {"n": 400}) == (Config(tile=4),)
    assert load_seeds([], SPACE, {}) == ()
    with pytest.raises(SpaceError, match="JSON list of configs"):
        load_seeds(tmp_path / "missing.json", SPACE, {})
    with pytest.raises(SpaceError, match="a seed is a config"):
        load_seeds([17], SPACE, {})


class Simulated:
    """A machine on which a config takes so long, give or take a thousandth."""

    def __init__(self, seconds):
        self._seconds, self._rng = seconds, np.random.default_rng(7)

    def __call__(self, entry):
        samples = self._seconds(**entry.config.plain()) * self._rng.uniform(0.999, 1.001, 5)
        return Trial(entry.config, Timing(tuple(map(float, samples)), "cpu"))


def test_a_search_says_how_much_may_remain_and_stops_early_by_default() -> None:
    space = Space(Knob("a", range(30)), Knob("b", range(30)))
    own = Session(store=MemoryStore(), pool="serial", trials=400)
    work = Simulated(lambda a, b: 1e-8 * (2000 + 400 * (abs(a - 9) + abs(b - 20))))
    decision = own.resolve(Problem(KEY, space, Config(a=0, b=0)), work)
    assert decision.evidence.remains is not None
    assert 0 <= decision.evidence.remains < 0.5
    assert decision.evidence.trials < 400
    assert any("as many again" in note for note in decision.evidence.notes)


def test_a_second_shape_starts_from_its_neighbour() -> None:
    own = Session(store=MemoryStore(), pool="serial", trials=24)
    work = Simulated(lambda tile: 1e-6 * (abs(tile - 20) + 1))
    first = own.resolve(PROBLEM, work)
    assert first.config != PROBLEM.default
    second = own.resolve(Problem(other(mode={"regime": "cold"}), SPACE, Config(tile=1)), work)
    tried = [trial.config for trial in own.store.trials(second.key)]
    assert tried[:2] == [PROBLEM.default, first.config]
    assert np.isfinite(second.evidence.seconds)
